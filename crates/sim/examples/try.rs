use ferrolb_sim::speakers::{Shape, Tally, run};
fn main() {
    let a: Vec<u64> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let shape = Shape { nodes: a[0] as u16, metallb: a[1] as u16 };
    let show = a.get(4).copied().unwrap_or(1);
    let mut tally = Tally::default();
    let mut bad = 0;
    let t = std::time::Instant::now();
    for seed in a[2]..a[3] {
        match run(seed, shape) {
            Ok(c) => tally.add(&c),
            Err(b) => {
                bad += 1;
                if bad <= show {
                    println!("{b}");
                } else {
                    println!("seed {} {} {}", b.seed, b.rule, b.what);
                }
            }
        }
        if bad > 40 {
            break;
        }
    }
    println!(
        "{tally}\nbad {bad} in {:?}; missing {:?}",
        t.elapsed(),
        tally.missing(shape.metallb > 0).collect::<Vec<_>>()
    );
}
