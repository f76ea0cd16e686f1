// SPDX-License-Identifier: Apache-2.0
//! Waiting for many sockets, a deadline, or another thread: epoll with a timer and a waker.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::error::{Attempt, Result};

/// Waits for several things at once. Belongs to one thread.
#[derive(Debug)]
pub struct Poller {
    epoll: Epoll,
    timer: TimerFd,
    armed: Option<Instant>,
    waker: Waker,
    events: Vec<EpollEvent>,
}

/// Makes a [`Poller`] in another thread stop waiting. Cheap to clone; never blocks.
#[derive(Clone, Debug)]
pub struct Waker(Arc<EventFd>);

/// What the caller chose to call a socket. [`u64::MAX`] and the number below are taken.
pub type Token = u64;

impl Poller {
    /// A poller that waits for nothing yet.
    ///
    /// # Errors
    ///
    /// If the process has too many open files.
    pub fn new() -> Result<Self> {
        let words = || "make a poller";
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).attempting(words)?;
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).attempting(words)?;
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let waker = Waker(Arc::new(EventFd::from_value_and_flags(0, flags).attempting(words)?));
        let poller = Self { epoll, timer, armed: None, waker, events: vec![EpollEvent::empty(); 64] };
        poller.add(&poller.timer, TIMER)?;
        poller.add(&*poller.waker.0, WAKER)?;
        Ok(poller)
    }

    /// The waker of this poller.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Begins to wait for something to read, or an error, on the socket. Closing the socket ends it.
    ///
    /// # Errors
    ///
    /// If the descriptor cannot be waited for.
    pub fn add(&self, socket: impl AsFd, token: Token) -> Result<()> {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, token);
        let words = || format!("wait for descriptor {}", socket.as_fd().as_raw_fd());
        self.epoll.add(&socket, event).attempting(words)
    }

    /// Waits until a socket is ready, a moment has come, or the waker was used. Names the ready sockets.
    ///
    /// # Errors
    ///
    /// None that the caller could do anything about.
    pub fn wait(&mut self, until: Option<Instant>) -> Result<impl Iterator<Item = Token>> {
        let timeout = if until.is_some_and(|until| until <= Instant::now()) {
            EpollTimeout::ZERO
        } else {
            self.set_timer(until)?;
            EpollTimeout::NONE
        };
        let ready = match self.epoll.wait(&mut self.events, timeout) {
            Err(nix::Error::EINTR) => 0,
            other => other.attempting(|| "wait for sockets")?,
        };
        let events = self.events.iter().take(ready);
        if events.clone().any(|event| event.data() == WAKER) {
            let _ = self.waker.0.read(); // only fails if nothing is to be read
        }
        Ok(events.map(EpollEvent::data).filter(|token| *token < WAKER))
    }

    /// Sets the timer, unless it is set to that moment: between two requests the next deadline rarely changes.
    fn set_timer(&mut self, until: Option<Instant>) -> Result<()> {
        if self.armed == until {
            return Ok(());
        }
        self.armed = until;
        match until {
            // Setting it again also clears an expiration that was not read. Zero would switch it off.
            Some(until) => {
                let after = until.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
                let expiration = Expiration::OneShot(TimeSpec::from_duration(after));
                self.timer.set(expiration, TimerSetTimeFlags::empty())
            }
            None => self.timer.unset(),
        }
        .attempting(|| "set a timer")
    }
}

impl Waker {
    /// Ends the current wait of the poller, or its next one if it is not waiting.
    pub fn wake(&self) {
        // It can only fail when 2^64 - 2 wakes are already pending.
        let _ = self.0.write(1);
    }
}

const TIMER: Token = u64::MAX;
const WAKER: Token = u64::MAX - 1;

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn wait(poller: &mut Poller, at_most: Duration) -> Vec<Token> {
        poller.wait(Some(Instant::now() + at_most)).unwrap().collect()
    }

    #[test]
    fn a_socket_with_something_to_read_is_named_until_it_is_read() {
        let mut poller = Poller::new().unwrap();
        let (one, mut other) = UnixStream::pair().unwrap();
        poller.add(&one, 7).unwrap();
        assert_eq!(wait(&mut poller, Duration::ZERO), []);
        other.write_all(b"x").unwrap();
        assert_eq!(wait(&mut poller, LONG), [7]);
        assert_eq!(wait(&mut poller, LONG), [7]);
        drop(one);
        assert_eq!(wait(&mut poller, Duration::ZERO), []);
    }

    #[test]
    fn time_ends_a_wait_and_not_before() {
        let mut poller = Poller::new().unwrap();
        for micros in [1, 300, 5_000, 300] {
            let (start, span) = (Instant::now(), Duration::from_micros(micros));
            assert_eq!(wait(&mut poller, span), []);
            assert!(start.elapsed() >= span, "{:?} instead of {span:?}", start.elapsed());
        }
    }

    #[test]
    fn the_waker_ends_a_wait_that_was_begun_before_or_after() {
        let mut poller = Poller::new().unwrap();
        let waker = poller.waker();
        waker.wake();
        waker.wake();
        assert_eq!(wait(&mut poller, LONG), []);
        assert_eq!(wait(&mut poller, Duration::ZERO), []); // both wakes were taken
        let thread = std::thread::spawn(move || waker.wake());
        assert_eq!(wait(&mut poller, LONG), []);
        thread.join().unwrap();
    }
}
