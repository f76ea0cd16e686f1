// SPDX-License-Identifier: Apache-2.0
//! Leaving connections to an API server that no longer knows who asks.
//!
//! An API server that is about to end serves the connections it has for a while, and may answer each request with 401,
//! because what it needs to check a token has ended already. Whoever keeps its connections alive would stay with it
//! until it is gone. So once a 401 came, every request is the last one of its connection, until one is answered
//! otherwise: the next goes to whichever server takes new connections.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response, StatusCode};
use tower::{Layer, Service};

/// Puts [`Fresh`] around a client.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreshLayer;

/// A client that leaves such connections.
#[derive(Clone, Debug)]
pub(crate) struct Fresh<S> {
    inner: S,
    /// Whether the last answer was 401.
    unknown: Arc<AtomicBool>,
}

impl<S> Layer<S> for FreshLayer {
    type Service = Fresh<S>;

    fn layer(&self, inner: S) -> Fresh<S> {
        Fresh { inner, unknown: Arc::default() }
    }
}

impl<S, B, C> Service<Request<B>> for Fresh<S>
where
    S: Service<Request<B>, Response = Response<C>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        if self.unknown.load(Ordering::Relaxed) {
            request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let (answer, unknown) = (self.inner.call(request), Arc::clone(&self.unknown));
        Box::pin(async move {
            let answer = answer.await?;
            unknown.store(answer.status() == StatusCode::UNAUTHORIZED, Ordering::Relaxed);
            Ok(answer)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Answers with these codes, one after the other, and notes which requests ask for the end of the connection.
    #[derive(Clone)]
    struct Server {
        codes: Arc<Mutex<Vec<u16>>>,
        last: Arc<Mutex<Vec<bool>>>,
    }

    impl Service<Request<()>> for Server {
        type Response = Response<()>;
        type Error = std::convert::Infallible;
        type Future = std::future::Ready<Result<Response<()>, Self::Error>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<()>) -> Self::Future {
            let last = request.headers().get(CONNECTION).is_some_and(|value| value == "close");
            self.last.lock().unwrap().push(last);
            let mut answer = Response::new(());
            *answer.status_mut() = StatusCode::from_u16(self.codes.lock().unwrap().remove(0)).unwrap();
            std::future::ready(Ok(answer))
        }
    }

    #[tokio::test]
    async fn after_a_401_every_request_is_the_last_of_its_connection_until_another_answer_comes() {
        let codes = vec![200, 403, 401, 401, 200, 503, 200];
        let server = Server { last: Arc::default(), codes: Arc::new(Mutex::new(codes.clone())) };
        let mut client = FreshLayer.layer(server.clone());
        for code in codes {
            assert_eq!(client.call(Request::new(())).await.unwrap().status(), code);
        }
        assert_eq!(*server.last.lock().unwrap(), [false, false, false, true, true, false, false]);
    }
}
