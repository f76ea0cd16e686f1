// SPDX-License-Identifier: Apache-2.0
//! Answers: bodies and the representation the client accepts.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Response, StatusCode, header};
use hyper::body::{Body, Frame, SizeHint};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::error::{ApiError, Result};

/// An answer.
pub(crate) type Answer = Response<Content>;

/// Body of an answer: complete, or lines of a watch as they come.
#[derive(Debug)]
pub(crate) enum Content {
    /// All of it.
    Whole(Option<Bytes>),
    /// A stream that ends when the sender is gone.
    Stream(mpsc::Receiver<Bytes>),
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(lines) => {
                lines.poll_recv(context).map(|line| line.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

/// How the client wants objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As they are.
    Plain,
    /// As a table for people (`as=Table`).
    Table,
    /// Metadata only (`as=PartialObjectMetadata`).
    Metadata,
    /// Metadata only, in a list.
    MetadataList,
}

/// Reads the Accept header: the first form in it that can be served.
pub(crate) fn accepted_form(accept: &str) -> Result<Form> {
    if accept.trim().is_empty() {
        return Ok(Form::Plain);
    }
    for choice in accept.split(',') {
        let mut words = choice.split(';').map(str::trim);
        let media = words.next().unwrap_or_default();
        if !matches!(media, "application/json" | "application/*" | "*/*") {
            continue;
        }
        let (mut form, mut group) = (Form::Plain, "");
        for word in words {
            match word.split_once('=') {
                Some(("as", "Table")) => form = Form::Table,
                Some(("as", "PartialObjectMetadata")) => form = Form::Metadata,
                Some(("as", "PartialObjectMetadataList")) => form = Form::MetadataList,
                Some(("g", value)) => group = value,
                _ => {}
            }
        }
        if form == Form::Plain && !group.is_empty() {
            continue;
        }
        return Ok(form);
    }
    Err(ApiError::not_acceptable())
}

/// An answer with a JSON body.
pub(crate) fn json(code: u16, value: &Value) -> Answer {
    typed(code, "application/json", value.to_string().into())
}

/// An answer with a text body.
pub(crate) fn plain(code: u16, text: &'static str) -> Answer {
    typed(code, "text/plain; charset=utf-8", Bytes::from_static(text.as_bytes()))
}

/// An answer of a given media type.
pub(crate) fn typed(code: u16, media_type: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(Content::Whole(Some(body)));
    *answer.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-cache, private"));
    answer
}

/// A stream of JSON lines.
pub(crate) fn stream(lines: mpsc::Receiver<Bytes>) -> Answer {
    let mut answer = Response::new(Content::Stream(lines));
    let json = header::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(header::CONTENT_TYPE, json);
    answer
}

/// Adds warnings to an answer. What no header can carry is left out.
pub(crate) fn warn(answer: &mut Answer, warnings: &[String]) {
    for warning in warnings.iter().filter(|warning| !warning.chars().any(char::is_control)) {
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = header::HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()) {
            answer.headers_mut().append(header::WARNING, value);
        }
    }
}

/// The answer of a refusal.
pub(crate) fn refusal(error: &ApiError) -> Answer {
    let mut answer = json(error.code, &error.to_status());
    if let Some(seconds) = error.retry_after().filter(|_| matches!(error.code, 429 | 500..)) {
        answer.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_form_that_can_be_served_is_chosen() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        assert_eq!(accepted_form(table), Ok(Form::Table));
        assert_eq!(accepted_form("application/vnd.kubernetes.protobuf,application/json"), Ok(Form::Plain));
        assert_eq!(accepted_form("application/vnd.kubernetes.protobuf"), Err(ApiError::not_acceptable()));
        assert_eq!(accepted_form("*/*"), Ok(Form::Plain));
        let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        assert_eq!(accepted_form(metadata), Ok(Form::MetadataList));
    }
}
