// SPDX-License-Identifier: Apache-2.0
//! What happens to a cluster, one thing after the other, and sometimes before all is well again.

use std::time::Duration;

use ferrolb_net_types::Time;

use super::bounds::{ANSWERS, BADGE, EXCHANGES, HANDOVER, HEARING, OVERLAP, RECOVERY, STALE, STALE_COUNTS};
use super::links::USUAL_DELAY;
use super::tally::{Cause, Mark};
use super::traffic::Event;
use super::world::{Node, Pod, World};

/// A fault, with what it needs to be possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    HostDies,
    Crash,
    Restart,
    Leave,
    Replace,
    ComeBack,
    Part,
    Isolate,
    OneWay,
    NoDatagrams,
    Loss,
    Slow,
    Nap,
    Sleep,
    Exclude,
    NoNetwork,
    Readmit,
    MoveEndpoints,
    ApiLostByOne,
    ApiLostByAll,
    Swap,
}

/// How often each is chosen in clusters that are not large.
const FAULTS: [(u64, Fault); 21] = [
    (4, Fault::HostDies),
    (3, Fault::Crash),
    (3, Fault::Restart),
    (3, Fault::Leave),
    (5, Fault::Replace),
    (8, Fault::ComeBack),
    (5, Fault::Part),
    (4, Fault::Isolate),
    (3, Fault::OneWay),
    (3, Fault::NoDatagrams),
    (4, Fault::Loss),
    (3, Fault::Slow),
    (3, Fault::Nap),
    (4, Fault::Sleep),
    (3, Fault::Exclude),
    (3, Fault::NoNetwork),
    (5, Fault::Readmit),
    (3, Fault::MoveEndpoints),
    (3, Fault::ApiLostByOne),
    (2, Fault::ApiLostByAll),
    (6, Fault::Swap),
];

/// And in large ones, where every second costs much.
const FEW_FAULTS: [(u64, Fault); 7] = [
    (3, Fault::HostDies),
    (2, Fault::Leave),
    (2, Fault::Replace),
    (2, Fault::Isolate),
    (2, Fault::Nap),
    (2, Fault::Exclude),
    (1, Fault::Loss),
];

/// Up to so many nodes a partition may last until each side has given up the other.
const SMALL: usize = 10;

/// Plays a sequence: a start, some faults, and peace.
pub(super) fn play(world: &mut World) {
    start_all(world);
    let (faults, list): (u32, &[(u64, Fault)]) = match world.shape.nodes {
        0..=3 => (6, &FAULTS),
        4..=10 => (5, &FAULTS),
        11..=200 => (4, &FAULTS),
        _ => (2, &FEW_FAULTS),
    };
    let mut played = 0;
    while played < faults && world.broken.is_none() {
        let fault = world.rng.weighted(list);
        if !happen(world, fault) {
            continue;
        }
        played += 1;
        world.tally.steps += 1;
        if world.rng.chance(75) {
            settle(world);
        } else {
            world.tally.count(Mark::Overlapped);
            let pause = world.rng.below(3000);
            world.run_for(Duration::from_millis(pause));
        }
    }
    peace(world);
}

fn start_all(world: &mut World) {
    let count = world.nodes.len();
    let moved = HANDOVER + OVERLAP + world.bounds.spread();
    if world.is_large() {
        // They hear a few only, so that those that start at once learn of each other by gossip: until then two may
        // believe to lead.
        let heard = HEARING * 2 + moved;
        world.judge.disturb(world.now, Cause::Start, heard, heard);
        // A few, then the rest at once.
        let (first, rest) = (0..SMALL, SMALL..count);
        first.for_each(|number| world.start(number));
        world.run_for(HEARING);
        rest.for_each(|number| world.start(number));
    } else {
        let within = if world.rng.chance(50) { 50 } else { 3000 };
        let mut starts: Vec<(u64, usize)> =
            (0..count).map(|number| (world.rng.below(within), number)).collect();
        starts.sort_unstable();
        world.nodes.iter_mut().for_each(|node| node.pod = Some(Pod::Runs));
        for (at, number) in starts {
            world.run_until(Time::millis(at), false);
            world.start(number);
        }
    }
    world.tally.count(Mark::StartedTogether);
    world.judge.disturb(world.now, Cause::Start, Duration::ZERO, HEARING + moved);
    settle(world);
}

/// All is to be well in time.
fn settle(world: &mut World) {
    world.settle();
    world.count_outcomes();
}

/// Ends all that is wrong; then all is well, and stays so.
fn peace(world: &mut World) {
    world.tell(|| "peace".to_owned());
    sound(world);
    heal(world);
    for number in 0..world.nodes.len() {
        world.set_api(number, true);
        if world.nodes[number].process.is_none() {
            come_back(world, number);
        }
    }
    let bound = world.bounds.death();
    world.judge.disturb(world.now, Cause::Heal, world.bounds.heal(), bound);
    settle(world);
    if world.broken.is_none() {
        world.tally.count(Mark::Whole);
        if !world.sees_all() {
            world.fail(Mark::Whole, || "not everybody sees everybody".to_owned());
        }
    }
    world.run_for(Duration::from_secs(3));
}

/// Lets it happen; whether it could.
fn happen(world: &mut World, fault: Fault) -> bool {
    disturbs_what_was_alone(world);
    if matches!(fault, Fault::HostDies | Fault::Crash) {
        rest(world);
    }
    match fault {
        Fault::HostDies => victim(world).is_some_and(|number| host_dies(world, number)),
        Fault::Crash => victim(world).is_some_and(|number| crash(world, number)),
        Fault::Restart => victim(world).is_some_and(|number| restart(world, number)),
        Fault::Leave => victim(world).is_some_and(|number| leave(world, number, Mark::Left)),
        Fault::Replace => victim(world).is_some_and(|number| replace(world, number, Mark::Replaced)),
        Fault::ComeBack => {
            let away: Vec<usize> =
                (0..world.nodes.len()).filter(|number| world.nodes[*number].process.is_none()).collect();
            let Some(number) = one_of(world, &away) else { return false };
            come_back(world, number);
            true
        }
        Fault::Part => part(world),
        Fault::Isolate => victim(world).is_some_and(|number| isolate(world, number)),
        Fault::OneWay | Fault::NoDatagrams => trouble_on_a_link(world, fault),
        Fault::Loss | Fault::Slow => bad_network(world, fault),
        Fault::Nap => victim(world).is_some_and(|number| sleep(world, number, 50, 900, Mark::Napped)),
        Fault::Sleep => victim(world).is_some_and(|number| sleep(world, number, 5_000, 40_000, Mark::Slept)),
        Fault::Exclude => victim(world).is_some_and(|number| refuse(world, number, Mark::Excluded)),
        Fault::NoNetwork => victim(world).is_some_and(|number| refuse(world, number, Mark::NoNetwork)),
        Fault::Readmit => readmit(world),
        Fault::MoveEndpoints => {
            world.tell(|| "endpoints move".to_owned());
            world.change(|facts, rng| facts.move_endpoints(rng));
            world.tally.count(Mark::EndpointsMoved);
            true
        }
        Fault::ApiLostByOne => victim(world).is_some_and(|number| api_lost_by_one(world, number)),
        Fault::ApiLostByAll => api_lost_by_all(world),
        Fault::Swap => world.shape.metallb > 0 && victim(world).is_some_and(|number| swap(world, number)),
    }
}

/// A speaker that runs; more often than not one that owns an address. Never the last one.
fn victim(world: &mut World) -> Option<usize> {
    let running: Vec<usize> = (0..world.nodes.len())
        .filter(|number| world.nodes[*number].process.is_some() && !world.nodes[*number].asleep)
        .collect();
    let owning: Vec<usize> =
        running.iter().copied().filter(|number| !world.nodes[*number].owned.is_empty()).collect();
    if running.len() < 2 {
        return None;
    }
    let list = if world.rng.chance(60) && !owning.is_empty() { owning } else { running };
    one_of(world, &list)
}

fn one_of(world: &mut World, list: &[usize]) -> Option<usize> {
    (!list.is_empty()).then(|| list[world.rng.index(list.len())])
}

fn between(world: &mut World, least: u64, most: u64) -> Duration {
    Duration::from_millis(least + world.rng.below(most - least + 1))
}

fn dies(world: &mut World, number: usize, mark: Mark) {
    if !world.nodes[number].owned.is_empty() {
        world.tally.count(Mark::TakenOver);
    }
    world.tally.count(mark);
    let (bound, alone) = if at_rest(world) {
        world.tally.count(Mark::DiedAtRest);
        let others = world.nodes.iter().filter(|node| node.process.is_some()).count() - 1;
        world.known_by = Some(world.now + world.bounds.death());
        (world.bounds.death_alone(others), true)
    } else {
        (world.bounds.death(), false)
    };
    world.tell(|| {
        format!("that is known within {bound:?}{}", if alone { ", for nothing else goes on" } else { "" })
    });
    world.judge.disturb(world.now, Cause::Death, Duration::ZERO, bound);
    world.kill(number);
}

/// Whether nothing has gone on for so long that every speaker takes itself for as fast as it is.
fn at_rest(world: &World) -> bool {
    let awake = |node: &Node| {
        node.process.is_none() || (node.api && !node.stale && !node.asleep && (node.metallb || node.eligible))
    };
    world.judge.right_by() + RECOVERY <= world.now
        && world.links_since + RECOVERY <= world.now
        && world.nodes.iter().all(awake)
        && world.is_well()
}

/// Before some deaths there is a rest, so that they come alone.
fn rest(world: &mut World) {
    if world.nodes.len() <= SMALL && world.rng.chance(50) {
        let rest = (world.judge.right_by() + RECOVERY).since(world.now);
        world.run_for(rest);
        settle(world);
    }
}

/// Something happens while a death may not be known yet: it may take as long now as it does where that is so.
fn disturbs_what_was_alone(world: &mut World) {
    if let Some(known_by) = world.known_by.take()
        && world.judge.waits_for(world.now, Cause::Death)
    {
        world.judge.disturb(world.now, Cause::Death, Duration::ZERO, known_by.since(world.now));
    }
}

fn host_dies(world: &mut World, number: usize) -> bool {
    world.tell(|| format!("node-{number} dies"));
    world.nodes[number].up = false;
    let epoch = world.nodes[number].epoch;
    world.agenda.add(world.now + Duration::from_secs(40), Event::NotReady { node: number, epoch });
    dies(world, number, Mark::HostDied);
    true
}

fn crash(world: &mut World, number: usize) -> bool {
    world.tell(|| format!("the speaker on node-{number} dies"));
    dies(world, number, Mark::Crashed);
    true
}

fn restart(world: &mut World, number: usize) -> bool {
    world.tell(|| format!("the speaker on node-{number} dies and is started again"));
    world.tally.count(Mark::Restarted);
    world.judge.disturb(world.now, Cause::Start, Duration::ZERO, HEARING);
    world.kill(number);
    let pause = between(world, 10, 1000);
    world.run_for(pause);
    world.start(number);
    true
}

fn leave(world: &mut World, number: usize, mark: Mark) -> bool {
    world.tell(|| format!("the speaker on node-{number} is stopped"));
    if !world.nodes[number].owned.is_empty() {
        world.tally.count(Mark::Handed);
    }
    world.tally.count(mark);
    let lenient = if world.nodes[number].metallb { Duration::from_secs(1) } else { Duration::ZERO };
    // Somebody that has just heard of it, and of whom it has not heard: it cannot say goodbye to that one.
    let unseen = (0..world.nodes.len()).any(|other| {
        other != number
            && world.nodes[other].sees.contains(&world.nodes[number].name)
            && !world.nodes[number].sees.contains(&world.nodes[other].name)
    });
    let told = if unseen { world.bounds.death() } else { world.bounds.spread() };
    let right = HANDOVER + OVERLAP + told;
    world.judge.disturb(world.now, Cause::Stop, lenient, right.max(lenient));
    world.nodes[number].pod = Some(Pod::Terminates);
    let now = world.now;
    if let Some(process) = &mut world.nodes[number].process {
        process.stop(now);
    }
    world.drain(number);
    let end = now + Duration::from_millis(1200);
    while world.now < end && world.nodes[number].process.is_some() && world.broken.is_none() {
        world.run_for(Duration::from_millis(10));
    }
    world.tally.count(Mark::Ends);
    if world.nodes[number].process.is_some() {
        world.fail(Mark::Ends, || format!("the speaker on node-{number} was stopped and goes on"));
    }
    true
}

fn replace(world: &mut World, number: usize, mark: Mark) -> bool {
    leave(world, number, mark);
    let pause = between(world, 10, 2000);
    world.run_for(pause);
    world.start(number);
    true
}

fn come_back(world: &mut World, number: usize) {
    world.tally.count(Mark::CameBack);
    let node = &mut world.nodes[number];
    (node.up, node.ready) = (true, true);
    world.start(number);
    world.everybody_lists();
}

fn part(world: &mut World) -> bool {
    let mut sides: Vec<u16> = (0..world.nodes.len()).map(|_| world.rng.below(2) as u16).collect();
    let first = world.rng.index(sides.len());
    sides[first] = 0;
    let second = (first + 1 + world.rng.index(sides.len() - 1)) % sides.len();
    sides[second] = 1;
    world.tell(|| format!("the network falls apart: {sides:?}"));
    world.links.side = sides;
    world.tally.count(Mark::Parted);
    apart(world)
}

fn isolate(world: &mut World, number: usize) -> bool {
    world.tell(|| format!("node-{number} is cut off"));
    world.links.side[number] = 1;
    world.tally.count(Mark::Isolated);
    apart(world)
}

/// The sides stay apart for a while, or until each is well by itself.
fn apart(world: &mut World) -> bool {
    world.links_since = world.now;
    world.words_lost |= world.judge.waits_for(world.now, Cause::Api);
    world.judge.disturb(world.now, Cause::Part, Duration::ZERO, world.bounds.parted());
    if world.nodes.len() <= SMALL && world.rng.chance(50) {
        settle(world);
    } else {
        let hold = between(world, 500, 20_000);
        world.run_for(hold);
    }
    heal(world);
    true
}

fn heal(world: &mut World) {
    if world.links.side.iter().any(|side| *side != 0) {
        world.tell(|| "the network is one again".to_owned());
        world.links.side.fill(0);
        world.links_since = world.now;
        world.tally.count(Mark::Healed);
        world.judge.over(Cause::Part);
        let bound = world.bounds.heal();
        world.judge.disturb(world.now, Cause::Heal, bound, bound);
        words_are_repeated(world);
    }
}

/// What was said while nothing passed, and so little later that nobody was given up for it, is told by an exchange, of
/// which each speaker has one every 30 seconds.
fn words_are_repeated(world: &mut World) {
    if std::mem::take(&mut world.words_lost) {
        world.judge.disturb(world.now, Cause::Api, EXCHANGES * 2, EXCHANGES * 2);
    }
}

fn trouble_on_a_link(world: &mut World, fault: Fault) -> bool {
    world.words_lost |= world.judge.waits_for(world.now, Cause::Api);
    let from = world.rng.index(world.nodes.len());
    let to = (from + 1 + world.rng.index(world.nodes.len() - 1)) % world.nodes.len();
    if fault == Fault::OneWay {
        world.tell(|| format!("nothing passes from node-{from} to node-{to}"));
        world.links.cut.insert((from, to));
        world.tally.count(Mark::OneWay);
    } else {
        world.tell(|| format!("no datagrams pass from node-{from} to node-{to}"));
        world.links.no_datagrams.insert((from, to));
        world.tally.count(Mark::NoDatagrams);
    }
    let hold = between(world, 1000, 20_000);
    world.run_for(hold);
    sound(world);
    true
}

fn bad_network(world: &mut World, fault: Fault) -> bool {
    world.words_lost |= world.judge.waits_for(world.now, Cause::Api);
    if fault == Fault::Loss {
        world.links.loss = 5 + world.rng.below(30);
        world.tally.count(Mark::Lossy);
    } else {
        world.links.delay = 50_000 + world.rng.below(350_000);
        world.tally.count(Mark::Slow);
    }
    let (loss, delay) = (world.links.loss, world.links.delay / 1000);
    world.tell(|| format!("a bad network: {loss} % are lost, up to {delay} ms"));
    let hold = if world.is_large() { 5_000 } else { 20_000 };
    let hold = between(world, 1000, hold);
    world.run_for(hold);
    sound(world);
    true
}

/// The links are good again.
fn sound(world: &mut World) {
    if world.links.is_sound() {
        return;
    }
    world.tell(|| "the links are good again".to_owned());
    let (cut, no_datagrams) = (&mut world.links.cut, &mut world.links.no_datagrams);
    cut.clear();
    no_datagrams.clear();
    world.links.loss = 0;
    world.links.delay = USUAL_DELAY;
    world.links_since = world.now;
    world.judge.disturb(world.now, Cause::Trouble, world.bounds.heal(), world.bounds.death());
    words_are_repeated(world);
}

fn sleep(world: &mut World, number: usize, least: u64, most: u64, mark: Mark) -> bool {
    let hold = between(world, least, most);
    world.tell(|| format!("the speaker on node-{number} stands still for {hold:?}"));
    world.tally.count(mark);
    world.judge.disturb(world.now, Cause::Sleep, Duration::ZERO, world.bounds.death());
    world.put_to_sleep(number);
    world.run_for(hold);
    world.tell(|| format!("the speaker on node-{number} goes on"));
    world.judge.over(Cause::Sleep);
    world.judge.disturb(world.now, Cause::Sleep, world.bounds.heal(), world.bounds.heal());
    world.wake(number);
    true
}

fn refuse(world: &mut World, number: usize, mark: Mark) -> bool {
    world.tell(|| format!("node-{number} may not announce any more"));
    world.tally.count(mark);
    let name = world.nodes[number].name.clone();
    world.change(|facts, _| {
        let node = facts.nodes.entry(name).or_default();
        match mark {
            Mark::Excluded => node.excluded = true,
            _ => node.network_unavailable = true,
        }
    });
    true
}

fn readmit(world: &mut World) -> bool {
    if world.truth.nodes.values().all(|node| *node == Default::default()) {
        return false;
    }
    world.tell(|| "all nodes may announce again".to_owned());
    world.tally.count(Mark::Readmitted);
    world.change(|facts, _| facts.nodes.values_mut().for_each(|node| *node = Default::default()));
    true
}

fn api_lost_by_one(world: &mut World, number: usize) -> bool {
    world.tell(|| format!("the speaker on node-{number} loses the API"));
    world.tally.count(Mark::ApiLostByOne);
    world.set_api(number, false);
    let hold = between(world, 1_000, 45_000);
    world.run_for(hold);
    settle(world);
    api_back(world)
}

fn api_lost_by_all(world: &mut World) -> bool {
    let calm = |node: &Node| {
        let enters = node.process.is_some() && !node.metallb && !node.eligible;
        node.api && !node.stale && !node.asleep && !enters
    };
    // What came before may have consequences for as long as two may answer, as after a partition, though all is well; and
    // for longer where speakers of MetalLB have to find out by themselves.
    let mixed = world.shape.metallb > 0;
    let over = if mixed { world.judge.right_by() } else { world.judge.lenient_until() };
    if world.rng.chance(50) {
        let rest = over.since(world.now);
        world.run_for(rest);
        settle(world);
    }
    world.tell(|| "all speakers lose the API".to_owned());
    world.tally.count(Mark::ApiLostByAll);
    let over = if mixed { world.judge.right_by() } else { over } <= world.now;
    let quiet = over && world.is_well() && world.nodes.iter().all(calm);
    let before = quiet.then_some(world.gains);
    (0..world.nodes.len()).for_each(|number| world.set_api(number, false));
    // Longer than it takes the first of them to count as stale, in the end.
    let hold = STALE + between(world, 500, 20_000);
    world.run_for(hold);
    settle(world);
    stays(world, before);
    if world.rng.chance(50)
        && let Some(number) = victim(world)
    {
        world.tally.count(Mark::DiedWithoutApi);
        host_dies(world, number);
        settle(world);
        return api_back(world);
    }
    api_back(world);
    if before.is_some() {
        world.run_for(ANSWERS + BADGE + world.bounds.spread());
        stays(world, before);
    }
    true
}

/// No address has another owner than when so many had been gained.
fn stays(world: &mut World, gains: Option<u64>) {
    let Some(before) = gains else { return };
    world.tally.count(Mark::Still);
    if world.gains != before {
        let moved = world.gains - before;
        world.fail(Mark::Still, || {
            format!("{moved} addresses have moved for want of the API, which nobody had")
        });
    }
}

fn api_back(world: &mut World) -> bool {
    world.tell(|| "the API is back".to_owned());
    world.tally.count(Mark::ApiBack);
    (0..world.nodes.len()).for_each(|number| world.set_api(number, true));
    // They hear of it after a moment.
    let moved = Duration::from_millis(200)
        + ANSWERS
        + STALE_COUNTS
        + BADGE
        + world.bounds.spread()
        + HANDOVER
        + OVERLAP;
    world.judge.disturb(world.now, Cause::Api, moved, moved);
    true
}

/// A speaker is replaced by one of the other kind.
fn swap(world: &mut World, number: usize) -> bool {
    let mark = if world.nodes[number].metallb { Mark::SwappedToOurs } else { Mark::SwappedBack };
    leave(world, number, mark);
    world.nodes[number].metallb = !world.nodes[number].metallb;
    let pause = between(world, 10, 2000);
    world.run_for(pause);
    world.start(number);
    true
}
