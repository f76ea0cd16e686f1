// SPDX-License-Identifier: Apache-2.0
//! What happens, step by step: drawn before anything runs, so that a sequence can be cut down to what matters.
//!
//! A step carries a seed of its own for everything that is left to chance while it lasts (how long messages take,
//! what overtakes what). Without its neighbours it therefore goes as it went with them.

use super::api::Kind;
use super::shape::{
    Allocation, Fault, POOL_FIELDS, POOL_NAMES, POOLS, PoolField, PoolShape, SERVICE_FIELDS, SERVICES,
    ServiceField, ServiceShape, Stack,
};
use crate::rng::Rng;

/// One step.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) deed: Deed,
    /// How long until the next one, in milliseconds.
    pub(crate) pause: u64,
    /// What is left to chance meanwhile.
    pub(crate) noise: u64,
}

/// What somebody does, or what breaks.
#[derive(Clone, Debug)]
pub(crate) enum Deed {
    CreateService(usize, ServiceShape),
    EditService(usize, ServiceField, ServiceShape),
    TouchService(usize, u64),
    DeleteService(usize),
    ReplaceService(usize, ServiceShape),
    CreatePool(usize, PoolShape),
    EditPool(usize, PoolField, PoolShape),
    ShrinkPool(usize),
    GrowPool(usize),
    DeletePool(usize),
    ReplacePool(usize, PoolShape),
    BreakPool(usize, Fault),
    OverlapPool(usize, usize),
    SwapPools(usize, usize),
    LabelNamespace(usize, &'static str),
    StealStatus(usize, Theft),
    StealAnnotation(usize, Option<&'static str>),
    StealPoolStatus(usize),
    /// A stranger answers this many writes of the status.
    Contest(usize, u8),
    DeleteState,
    Restart(usize),
    Kill(usize),
    Start,
    /// The process sleeps.
    Pause(usize, u64),
    Outage(u64),
    /// The next so many writes meet this.
    Fate(Fate, u8),
    /// So do the next so many requests about the Lease.
    LeaseFate(Fate, u8),
    /// The process is asked to end.
    Stop(usize),
    /// A speaker begins or ceases to announce a Service.
    Announce(usize),
    /// A stranger writes conditions.
    StealConditions(usize, u64),
    BreakWatch(usize, Kind, u64),
    LagWatch(usize, Kind, u64),
    Wait,
    Rest,
}

/// What a stranger writes into a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Theft {
    /// Nothing.
    Empty,
    /// What another Service lists.
    Of(usize),
    /// These entries: address, host name.
    These(&'static [(&'static str, &'static str)]),
}

/// What becomes of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Refused,
    Throttled,
    LostRequest,
    LostAnswer,
    Late,
    Slow,
}

const THEFTS: [Theft; 16] = [
    Theft::Empty,
    Theft::Of(0),
    Theft::Of(1),
    Theft::Of(2),
    Theft::Of(3),
    Theft::Of(4),
    Theft::These(&[("10.0.0.1", "")]),
    Theft::These(&[("10.0.0.9", ""), ("fd00::9", "")]),
    Theft::These(&[("fd00::1", "")]),
    Theft::These(&[("9.9.9.9", "")]),
    Theft::These(&[("10.0.0.0", ""), ("10.0.0.1", "")]),
    Theft::These(&[("10.0.0.1", ""), ("fd00::1", ""), ("10.0.0.0", "")]),
    Theft::These(&[("nonsense", "")]),
    Theft::These(&[("", "a.example")]),
    Theft::These(&[("10.0.0.8", ""), ("", "b.example")]),
    Theft::These(&[("::ffff:10.0.0.8", "")]),
];

/// What is in place when a sequence begins: pools, and a controller that was just started.
pub(crate) fn prelude(rng: &mut Rng) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut add = |deed, rng: &mut Rng| steps.push(Step { deed, pause: 0, noise: rng.next() });
    for slot in 0..POOLS {
        if rng.chance(if slot < 2 { 90 } else { 25 }) {
            let shape = PoolShape::draw(rng, slot);
            add(Deed::CreatePool(slot, shape), rng);
        }
    }
    if rng.chance(50) {
        add(Deed::LabelNamespace(0, "gold"), rng);
    }
    // Where there is room for one only, the second is none.
    add(Deed::Start, rng);
    add(Deed::Start, rng);
    steps
}

/// Draws a sequence.
pub(crate) fn draw(rng: &mut Rng) -> Vec<Step> {
    let length = 8 + rng.index(50);
    let mut steps = Vec::with_capacity(length + 3);
    while steps.len() < length {
        let deeds = match rng.below(100) {
            0..=2 => in_doubt(rng),
            3 => too_many(rng),
            _ => vec![Deed::draw(rng)],
        };
        for deed in deeds {
            steps.push(Step { deed, pause: draw_pause(rng), noise: rng.next() });
        }
    }
    steps
}

/// Nobody knows whether a Service has its address, and it may not have it any more. Chance alone hardly gets there.
fn in_doubt(rng: &mut Rng) -> Vec<Deed> {
    let (service, pool) = (rng.index(SERVICES), rng.index(2));
    let fate = rng.pick(&[Fate::LostRequest, Fate::LostAnswer, Fate::Late, Fate::Refused]);
    let change = match rng.below(4) {
        0 => Deed::DeletePool(pool),
        1 => Deed::ShrinkPool(pool),
        2 => Deed::EditPool(pool, PoolField::Allocation, PoolShape::draw(rng, pool)),
        _ => Deed::SwapPools(0, 1),
    };
    vec![Deed::Fate(fate, 3), Deed::ReplaceService(service, ServiceShape::draw(rng)), change]
}

/// A status lists more than a Service may have, all from one pool.
fn too_many(rng: &mut Rng) -> Vec<Deed> {
    let (service, pool) = (rng.index(SERVICES), rng.index(2));
    let mut shape = ServiceShape::draw(rng);
    (shape.load_balancer, shape.other_class, shape.stack) = (true, false, Stack::Prefer);
    (shape.ips, shape.ip, shape.pool) = ("", "", "");
    let mut large = PoolShape::draw(rng, pool);
    (large.v4, large.v6, large.allocation, large.broken, large.also) = (3, 2, Allocation::Absent, None, None);
    let three: [&[(&str, &str)]; 2] = [
        &[("10.0.0.0", ""), ("10.0.0.1", ""), ("fd00::", "")],
        &[("10.0.0.8", ""), ("10.0.0.9", ""), ("fd00::8", "")],
    ];
    vec![
        Deed::ReplacePool(pool, large),
        Deed::ReplaceService(service, shape),
        Deed::StealStatus(service, Theft::These(three[pool])),
    ]
}

fn draw_pause(rng: &mut Rng) -> u64 {
    match rng.below(10) {
        0..=2 => 0,
        3..=5 => rng.below(6),
        6..=7 => rng.below(100),
        8 => rng.below(1000),
        _ => rng.below(6000),
    }
}

/// Which deed; what it is done to is drawn afterwards.
#[derive(Clone, Copy)]
enum What {
    CreateService,
    EditService,
    TouchService,
    DeleteService,
    ReplaceService,
    CreatePool,
    EditPool,
    ShrinkPool,
    GrowPool,
    DeletePool,
    ReplacePool,
    BreakPool,
    OverlapPool,
    SwapPools,
    LabelNamespace,
    StealStatus,
    StealAnnotation,
    StealPoolStatus,
    Contest,
    DeleteState,
    Restart,
    Kill,
    Start,
    Pause,
    Outage,
    Fate,
    LeaseFate,
    Stop,
    Announce,
    StealConditions,
    BreakWatch,
    LagWatch,
    Wait,
    Rest,
}

const WEIGHTS: [(u64, What); 34] = [
    (220, What::CreateService),
    (150, What::EditService),
    (20, What::TouchService),
    (70, What::DeleteService),
    (15, What::ReplaceService),
    (35, What::CreatePool),
    (25, What::EditPool),
    (20, What::ShrinkPool),
    (20, What::GrowPool),
    (12, What::DeletePool),
    (8, What::ReplacePool),
    (10, What::BreakPool),
    (10, What::OverlapPool),
    (6, What::SwapPools),
    (14, What::LabelNamespace),
    (20, What::StealStatus),
    (8, What::StealAnnotation),
    (6, What::StealPoolStatus),
    (3, What::Contest),
    (4, What::DeleteState),
    (25, What::Restart),
    (8, What::Kill),
    (12, What::Start),
    (15, What::Pause),
    (8, What::Outage),
    (60, What::Fate),
    (25, What::LeaseFate),
    (6, What::Stop),
    (12, What::Announce),
    (6, What::StealConditions),
    (25, What::BreakWatch),
    (25, What::LagWatch),
    (60, What::Wait),
    (30, What::Rest),
];

impl Deed {
    fn draw(rng: &mut Rng) -> Self {
        let what = rng.weighted(&WEIGHTS);
        let service = rng.index(SERVICES);
        let pool = rng.index(POOLS);
        let which = rng.index(2);
        match what {
            What::CreateService => Self::CreateService(service, ServiceShape::draw(rng)),
            What::EditService => {
                Self::EditService(service, rng.weighted(&SERVICE_FIELDS), ServiceShape::draw(rng))
            }
            What::TouchService => Self::TouchService(service, rng.below(100)),
            What::DeleteService => Self::DeleteService(service),
            What::ReplaceService => Self::ReplaceService(service, ServiceShape::draw(rng)),
            What::CreatePool => Self::CreatePool(pool, PoolShape::draw(rng, pool)),
            What::EditPool => Self::EditPool(pool, rng.weighted(&POOL_FIELDS), PoolShape::draw(rng, pool)),
            What::ShrinkPool => Self::ShrinkPool(pool),
            What::GrowPool => Self::GrowPool(pool),
            What::DeletePool => Self::DeletePool(pool),
            What::ReplacePool => Self::ReplacePool(pool, PoolShape::draw(rng, pool)),
            What::BreakPool => Self::BreakPool(
                pool,
                rng.pick(&[Fault::NoAddresses, Fault::Nonsense, Fault::TwiceTheNamespace]),
            ),
            What::OverlapPool => Self::OverlapPool(pool, rng.index(POOLS)),
            What::SwapPools => Self::SwapPools(pool, (pool + 1 + rng.index(POOLS - 1)) % POOLS),
            What::LabelNamespace => Self::LabelNamespace(rng.index(2), rng.pick(&["", "gold", "iron"])),
            What::StealStatus => Self::StealStatus(service, rng.pick(&THEFTS)),
            What::StealAnnotation => {
                Self::StealAnnotation(service, rng.chance(60).then(|| rng.pick(&POOL_NAMES)))
            }
            What::StealPoolStatus => Self::StealPoolStatus(pool),
            What::Contest => Self::Contest(service, 3 + rng.below(5) as u8),
            What::DeleteState => Self::DeleteState,
            What::Restart => Self::Restart(which),
            What::Kill => Self::Kill(which),
            What::Start => Self::Start,
            What::Pause => Self::Pause(which, 5 + rng.below(8000)),
            What::Outage => Self::Outage(10 + rng.below(8000)),
            What::Fate => Self::Fate(draw_fate(rng), 1 + rng.below(4) as u8),
            What::LeaseFate => Self::LeaseFate(draw_fate(rng), 1 + rng.below(5) as u8),
            What::Stop => Self::Stop(which),
            What::Announce => Self::Announce(service),
            What::StealConditions => Self::StealConditions(service, rng.below(4)),
            What::BreakWatch => Self::BreakWatch(which, draw_kind(rng), rng.below(2000)),
            What::LagWatch => Self::LagWatch(which, draw_kind(rng), 5 + rng.below(3000)),
            What::Wait => Self::Wait,
            What::Rest => Self::Rest,
        }
    }
}

fn draw_fate(rng: &mut Rng) -> Fate {
    rng.pick(&[Fate::Refused, Fate::Throttled, Fate::LostRequest, Fate::LostAnswer, Fate::Late, Fate::Slow])
}

fn draw_kind(rng: &mut Rng) -> Kind {
    rng.weighted(&[
        (5, Kind::Services),
        (3, Kind::Pools),
        (1, Kind::Namespaces),
        (1, Kind::States),
        (1, Kind::L2Statuses),
    ])
}
