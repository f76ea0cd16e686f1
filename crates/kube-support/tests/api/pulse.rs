// SPDX-License-Identifier: Apache-2.0
//! Connections that died, and the return of the API server, over sockets.

use std::time::Duration;

use ferrolb_kube_support::pulse::{Pulse, feel};
use ferrolb_kube_support::reach::Reach;
use ferrolb_kube_support::request::send;
use http::Method;
use tokio::sync::mpsc;

use crate::cable::{Bench, soon};

#[tokio::test]
async fn a_question_that_is_given_up_takes_its_connection_with_it() {
    let bench = Bench::new().await;
    let ask = |limit| send(&bench.client, Method::GET, "/version", None, limit);
    let (short, long) = (Duration::from_millis(200), Duration::from_secs(20));
    ask(long).await.unwrap();
    bench.fall_silent();
    assert_eq!(ask(short).await.unwrap_err().code, 0, "it went out on the connection that had died");
    ask(long).await.unwrap();
}

#[tokio::test]
async fn the_servers_return_is_said_though_nobody_else_asks() {
    let bench = Bench::new().await;
    let reach = Reach::default();
    let (sender, mut said) = mpsc::unbounded_channel();
    tokio::spawn(feel(bench.client.clone(), reach.clone(), move |pulse| {
        let _ = sender.send(pulse);
    }));
    bench.pull();
    let limit = Duration::from_secs(20);
    let error = send(&bench.client, Method::GET, "/version", None, limit).await.unwrap_err();
    reach.lost(&error.message);
    bench.plug_in();
    assert_eq!(soon("a word of the return", said.recv()).await, Some(Pulse::Answers));
}
