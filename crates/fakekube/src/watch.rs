// SPDX-License-Identifier: Apache-2.0
//! Watches: the present state if asked for, then every change, bookmarks in between.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::Cluster;
use crate::attributes::Attributes;
use crate::error::{ApiError, Result};
use crate::kinds::Resource;
use crate::object;
use crate::request::{Request, Target};
use crate::respond::{self, Answer, Form, accepted_form};
use crate::selector::Selector;
use crate::store::{Change, Lines};
use crate::verbs::form;
use crate::verbs::read::{parse_revision, partial};
use crate::{random, table};

/// Starts a watch; it ends when the client goes, the server stops or its time is up.
pub(crate) async fn start(
    cluster: &Arc<Cluster>,
    request: &Request,
    resource: &Arc<Resource>,
    target: &Target,
) -> Result<Answer> {
    let query = &request.query;
    let form = accepted_form(request.header(header::ACCEPT))?;
    let mut fields = query.text("fieldSelector").to_owned();
    if let Some(name) = &target.name {
        let comma = if fields.is_empty() { "" } else { "," };
        fields.push_str(&format!("{comma}metadata.name={name}"));
    }
    let selector = Selector::parse(query.text("labelSelector"), &fields, resource)?;
    let wanted = query.text("resourceVersion");
    let revision = if wanted.is_empty() { 0 } else { parse_revision(wanted)? };
    let bookmarks = query.flag("allowWatchBookmarks");
    let initial = query.flag("sendInitialEvents");
    if query.has("sendInitialEvents") && query.text("resourceVersionMatch") != "NotOlderThan" {
        return Err(ApiError::bad_request(
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ));
    }
    // Without a limit of the client's, watches end after 30 to 60 minutes, spread so that clients do not
    // return together.
    let seconds = match query.number("timeoutSeconds")? {
        Some(0) | None => 1800 + random::below(1800),
        Some(seconds) => seconds,
    };
    let (lines, receiver) = mpsc::channel(64);
    let (number, open) = cluster.faults.watch_began(Attributes::of(request, Some(target)));
    let watch = Watch {
        cluster: Arc::clone(cluster),
        resource: Arc::clone(resource),
        namespace: target.namespace.clone(),
        selector,
        form,
        include: query.text("includeObject").to_owned(),
        revision,
        replay: initial || (!query.has("sendInitialEvents") && revision == 0),
        mark_initial: initial && bookmarks,
        bookmarks,
        deadline: Instant::now() + Duration::from_secs(seconds),
        lines,
        number,
        open,
    };
    tokio::spawn(watch.run());
    Ok(respond::stream(receiver))
}

struct Watch {
    cluster: Arc<Cluster>,
    resource: Arc<Resource>,
    namespace: Option<String>,
    selector: Selector,
    form: Form,
    include: String,
    revision: u64,
    replay: bool,
    mark_initial: bool,
    bookmarks: bool,
    deadline: Instant,
    lines: mpsc::Sender<Bytes>,
    number: u64,
    /// Cancelled when the watch is to end.
    open: CancellationToken,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.cluster.faults.watch_ended(self.number);
    }
}

/// The client is gone.
struct Gone;

/// How often a bookmark is sent.
const BOOKMARK: Duration = Duration::from_secs(30);

impl Watch {
    async fn run(mut self) {
        // The error says only that nobody listens any more.
        let _ = self.stream().await;
    }

    async fn stream(&mut self) -> std::result::Result<(), Gone> {
        let mut news = self.cluster.store.subscribe(&self.resource.storage);
        if self.replay {
            let (revision, objects) =
                self.cluster.store.list(&self.resource.storage, self.namespace.as_deref());
            for stored in objects {
                if self.selector.matches(&stored.object) {
                    self.send("ADDED", &stored.object, None).await?;
                }
            }
            self.revision = revision;
            if self.mark_initial {
                self.bookmark(true).await?;
            }
        } else if self.revision == 0 {
            self.revision = self.cluster.store.revision();
        }
        let mut next_bookmark = Instant::now() + BOOKMARK;
        // Where the client came from may be forgotten; from there on it is told of everything.
        let mut told = false;
        loop {
            news.mark_unchanged();
            let (store, storage) = (&self.cluster.store, &self.resource.storage);
            let found = if told {
                store.news_since(storage, self.revision)
            } else {
                store.changes_since(storage, self.revision)
            };
            told = true;
            let Some((now, changes)) = found else {
                if self.open.is_cancelled() {
                    return Ok(());
                }
                let (asked, now) = (self.revision, self.cluster.store.revision());
                let error = ApiError::expired(format!("too old resource version: {asked} ({now})"));
                return self.line("ERROR", error.to_status()).await;
            };
            for change in &changes {
                self.change(change).await?;
            }
            self.revision = self.revision.max(now);
            let row = &self.resource;
            if self.cluster.registry.find(&row.group, &row.version, &row.plural).is_none() {
                // The kind is gone, and so is what could be told of it.
                return Ok(());
            }
            if self.bookmarks && next_bookmark <= Instant::now() {
                self.bookmark(false).await?;
                next_bookmark = Instant::now() + BOOKMARK;
            }
            tokio::select! {
                // The sender lives in the cluster, which this watch keeps alive.
                _ = news.changed() => {}
                () = self.lines.closed() => return Err(Gone),
                () = self.cluster.stop.cancelled() => return Ok(()),
                () = self.open.cancelled() => return Ok(()),
                () = tokio::time::sleep_until(self.deadline) => return Ok(()),
                // Once more around, so that it marks the newest revision.
                () = tokio::time::sleep_until(next_bookmark), if self.bookmarks => {}
            }
        }
    }

    /// A change as this watch's selector sees it: an object may come into view and leave it.
    async fn change(&self, change: &Change) -> std::result::Result<(), Gone> {
        let in_view = |object: &Arc<Value>| {
            self.namespace.as_deref().is_none_or(|namespace| object::namespace(object) == namespace)
                && self.selector.matches(object)
        };
        let before = change.before.as_ref().is_some_and(in_view);
        let after = change.after.as_ref().filter(|object| in_view(object));
        match (before, after) {
            (false, Some(object)) => self.send("ADDED", object, Some(&change.lines)).await,
            (true, Some(object)) => self.send("MODIFIED", object, Some(&change.lines)).await,
            (true, None) => {
                let last = match (&change.last, &change.before) {
                    (Some(last), _) => Arc::clone(last),
                    // It left the view: shown as it last was in it, at the revision of the change.
                    (None, Some(before)) => {
                        let mut last = (**before).clone();
                        let revision = change.revision.to_string();
                        object::metadata_mut(&mut last).insert("resourceVersion".into(), revision.into());
                        Arc::new(last)
                    }
                    (None, None) => return Ok(()),
                };
                self.send("DELETED", &last, Some(&change.lines)).await
            }
            (false, None) => Ok(()),
        }
    }

    async fn send(
        &self,
        event: &'static str,
        object: &Value,
        lines: Option<&Lines>,
    ) -> std::result::Result<(), Gone> {
        let lines = lines.filter(|_| self.form == Form::Plain);
        let version = self.resource.api_version();
        if let Some(line) = lines.and_then(|lines| lines.find(event, &version)) {
            return self.say(line).await;
        }
        let object = match form::shown(&self.cluster, &self.resource, object).await {
            Ok(object) => object,
            Err(error) => {
                // It cannot be told what happened: whoever watches starts anew.
                self.line("ERROR", error.to_status()).await?;
                return Err(Gone);
            }
        };
        let object = match self.form {
            Form::Plain => object,
            Form::Table => {
                let metadata = json!({ "resourceVersion": object::resource_version(&object) });
                table::render(&self.resource, &[object], metadata, &self.include)
            }
            Form::Metadata | Form::MetadataList => partial(object),
        };
        let line = line_of(event, object);
        if let Some(lines) = lines {
            lines.keep(event, version, line.clone());
        }
        self.say(line).await
    }

    async fn bookmark(&self, initial_end: bool) -> std::result::Result<(), Gone> {
        let mut metadata = json!({ "resourceVersion": self.revision.to_string() });
        if initial_end {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let object = json!({
            "kind": self.resource.kind, "apiVersion": self.resource.api_version(), "metadata": metadata,
        });
        let object = match self.form {
            Form::Plain => object,
            Form::Table => table::bookmark(&self.resource, object),
            Form::Metadata | Form::MetadataList => partial(object),
        };
        self.line("BOOKMARK", object).await
    }

    async fn line(&self, event: &str, object: Value) -> std::result::Result<(), Gone> {
        self.say(line_of(event, object)).await
    }

    async fn say(&self, line: Bytes) -> std::result::Result<(), Gone> {
        // Lines wait for a slow client here; a client that does not read holds up nobody else.
        tokio::select! {
            sent = self.lines.send(line) => sent.map_err(|_| Gone),
            () = self.cluster.stop.cancelled() => Err(Gone),
            () = self.open.cancelled() => Err(Gone),
            () = tokio::time::sleep_until(self.deadline) => Err(Gone),
        }
    }
}

fn line_of(event: &str, object: Value) -> Bytes {
    let mut line = json!({ "type": event, "object": object }).to_string();
    line.push('\n');
    line.into()
}
