// SPDX-License-Identifier: Apache-2.0
//! Feels whether the API server is still there, for whoever has to know within seconds.
//!
//! A watch can stand for a minute without a word, and a connection that died silently looks the same. Usually the
//! watches of a daemon begin anew often enough for something to be heard every few seconds. Where nothing was
//! heard for a while the server is asked for its version, which costs it nothing and which everybody may do. So it is,
//! again and again, as soon as anybody has not reached it, until it answers.

use std::time::Duration;

use http::Method;
use kube::Client;
use tokio::time::Instant;

use crate::reach::{Outages, Reach};
use crate::request::{RequestError, send};

/// What is felt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pulse {
    /// The server answers, after it had been silent, or had not been reached by somebody who asked.
    Answers,
    /// It says nothing, though it was asked.
    Silent {
        /// When it was heard last.
        since: Instant,
    },
}

/// Says what changed, for ever. The server counts as answering at the beginning.
pub async fn feel(client: Client, reach: Reach, say: impl FnMut(Pulse) + Send) {
    let ask = || async {
        let answer = send(&client, Method::GET, "/version", None, LIMIT).await;
        if let Err(error) = &answer
            && !is_sign_of_life(error)
        {
            reach.lost(&error.message);
            return false;
        }
        true
    };
    follow(&reach, ask, say).await;
}

/// Says, for ever, that the server answers after somebody had not been answered. Asks nothing by itself.
pub async fn returns(reach: Reach, mut say: impl FnMut() + Send) {
    let mut outages = reach.outages();
    let mut told = outages.borrow_and_update().ended;
    // The sender lives as long as this handle.
    while outages.changed().await.is_ok() {
        let ended = outages.borrow_and_update().ended;
        if std::mem::replace(&mut told, ended) != ended {
            say();
        }
    }
}

/// Whether an error comes from the server itself: who may not ask is answered all the same. By 5xx whatever stands before
/// it says that it is away.
const fn is_sign_of_life(error: &RequestError) -> bool {
    matches!(error.code, 1..500)
}

async fn follow<A, F>(reach: &Reach, ask: A, mut say: impl FnMut(Pulse))
where
    A: Fn() -> F,
    F: Future<Output = bool>,
{
    let mut outages = reach.outages();
    let mut told = outages.borrow().ended;
    loop {
        let Outages { lost, ended } = *outages.borrow_and_update();
        if ended != told {
            told = ended;
            say(Pulse::Answers);
        }
        let last = reach.last();
        let quiet = last + QUIET;
        // Whoever has not reached it waits ever longer before he tries again; here the pauses stay short.
        let next = if lost { quiet.min(Instant::now() + PAUSE) } else { quiet };
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            _ = outages.changed() => continue,
        }
        let heard = !lost && reach.last() > last;
        if heard || answers(reach, &ask).await || Instant::now() < reach.last() + QUIET {
            continue;
        }
        let since = reach.last();
        say(Pulse::Silent { since });
        loop {
            tokio::select! {
                () = reach.heard() => break,
                () = tokio::time::sleep(PAUSE) => {
                    if answers(reach, &ask).await {
                        break;
                    }
                }
            }
        }
        reach.renew(since);
        told = outages.borrow_and_update().ended;
        say(Pulse::Answers);
    }
}

/// Whether the server answers this question, or anything else meanwhile.
async fn answers<A, F>(reach: &Reach, ask: &A) -> bool
where
    A: Fn() -> F,
    F: Future<Output = bool>,
{
    tokio::select! {
        () = reach.heard() => true,
        answered = ask() => {
            if answered {
                reach.answered();
            }
            answered
        }
    }
}

/// The longest from the last sign of life of a server that went away until that is said, so also the longest by which
/// two daemons can differ about when they heard it last.
pub const NOTICED_WITHIN: Duration = Duration::from_secs(QUIET.as_secs() + LIMIT.as_secs());

/// The longest from the return of a server that somebody had not reached until that is said. A question that is given
/// up takes its connection with it, also one that has only begun, so that none waits for what another began in the outage.
pub const RETURNED_WITHIN: Duration = Duration::from_secs(PAUSE.as_secs() + LIMIT.as_secs());

/// After so long without a sign of life the server is asked.
const QUIET: Duration = Duration::from_secs(10);

/// How long it may take to answer.
const LIMIT: Duration = Duration::from_secs(2);

/// How long to wait before it is asked again.
const PAUSE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::sync::{Arc, Mutex};

    use super::*;

    struct Server {
        reach: Reach,
        up: Arc<AtomicBool>,
        asked: Arc<AtomicU32>,
        said: Arc<Mutex<Vec<(u64, Pulse)>>>,
        start: Instant,
    }

    /// A server that answers while it is up, or lets a question hang.
    fn server() -> Server {
        let reach = Reach::default();
        let start = reach.last();
        let (up, asked, said) =
            (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU32::new(0)), Arc::default());
        let server =
            Server { reach: reach.clone(), up: Arc::clone(&up), asked: Arc::clone(&asked), said, start };
        let said = Arc::clone(&server.said);
        tokio::spawn(async move {
            let ask = || async {
                asked.fetch_add(1, Ordering::Relaxed);
                if !up.load(Ordering::Relaxed) {
                    tokio::time::sleep(LIMIT).await;
                }
                up.load(Ordering::Relaxed)
            };
            follow(&reach, ask, |pulse| said.lock().unwrap().push((start.elapsed().as_secs(), pulse))).await;
        });
        server
    }

    async fn pass(seconds: u64) {
        for _ in 0..seconds * 10 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    #[test]
    fn a_server_that_refuses_to_answer_is_there() {
        for (code, alive) in
            [(0, false), (401, true), (403, true), (404, true), (429, true), (500, false), (503, false)]
        {
            let error = RequestError { code, ..RequestError::no_answer("") };
            assert_eq!(is_sign_of_life(&error), alive, "{code}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_heard_is_not_asked() {
        let server = server();
        for _ in 0..20 {
            pass(9).await;
            server.reach.alive();
        }
        assert_eq!(server.asked.load(Ordering::Relaxed), 0);
        pass(60).await;
        assert!(server.asked.load(Ordering::Relaxed) >= 5, "nobody else says anything");
        assert_eq!(*server.said.lock().unwrap(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silence_is_said_within_seconds_and_so_is_its_end() {
        let server = server();
        pass(60).await;
        server.reach.alive();
        server.up.store(false, Ordering::Relaxed);
        pass(60).await;
        server.up.store(true, Ordering::Relaxed);
        pass(20).await;
        let said = server.said.lock().unwrap().clone();
        let since = server.start + Duration::from_secs(60);
        assert_eq!(said.len(), 2, "{said:?}");
        assert_eq!(said[0], (60 + NOTICED_WITHIN.as_secs(), Pulse::Silent { since }));
        assert!(said[1].1 == Pulse::Answers && said[1].0 < 125, "{said:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_too_short_to_be_noticed_here_ends_with_a_word_as_well() {
        let server = server();
        pass(3).await;
        server.reach.lost("connection refused");
        pass(2).await;
        server.reach.answered();
        pass(1).await;
        server.reach.answered();
        pass(1).await;
        assert_eq!(*server.said.lock().unwrap(), [(5, Pulse::Answers)]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_return_is_said_in_time_however_long_the_outage_was_and_whenever_somebody_noticed_it() {
        for tenths in (5..300).step_by(7) {
            let server = server();
            pass(20).await;
            server.reach.answered();
            server.up.store(false, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(300)).await;
            server.reach.lost("connection refused");
            tokio::time::sleep(Duration::from_millis(tenths * 100)).await;
            let back = Instant::now();
            server.up.store(true, Ordering::Relaxed);
            while server.said.lock().unwrap().last().is_none_or(|(_, pulse)| *pulse != Pulse::Answers) {
                assert!(back.elapsed() <= RETURNED_WITHIN, "after {tenths} tenths of a second");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let silent = server.said.lock().unwrap().len() - 1;
            assert!(silent == 0 || tenths > 90, "it was heard within {QUIET:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_request_that_was_lost_makes_nobody_silent() {
        let server = server();
        pass(3).await;
        server.reach.lost("connection refused");
        pass(30).await;
        assert_eq!(*server.said.lock().unwrap(), [(5, Pulse::Answers)]);
    }

    #[tokio::test(start_paused = true)]
    async fn each_return_is_said_once_to_whoever_asks_nothing() {
        let reach = Reach::default();
        let said = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&said);
        tokio::spawn(returns(reach.clone(), move || {
            count.fetch_add(1, Ordering::Relaxed);
        }));
        for times in 1..=3 {
            pass(1).await;
            reach.answered();
            reach.lost("connection refused");
            pass(1).await;
            assert_eq!(said.load(Ordering::Relaxed), times - 1);
            reach.answered();
            reach.answered();
            pass(1).await;
            assert_eq!(said.load(Ordering::Relaxed), times);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_is_answered_first_ends_the_silence_at_once() {
        let server = server();
        server.up.store(false, Ordering::Relaxed);
        pass(41).await;
        server.reach.answered();
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        let said = server.said.lock().unwrap().clone();
        assert_eq!(said.last(), Some(&(41, Pulse::Answers)), "{said:?}");
    }
}
