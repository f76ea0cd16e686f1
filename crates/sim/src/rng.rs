// SPDX-License-Identifier: Apache-2.0
//! Chance that can be had again: equal seeds give equal numbers, on every machine and in every version.

/// A stream of numbers that its seed determines: SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0. The bias is beyond notice: bounds here are small.
    pub(crate) const fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A place in a list of this length, which is not 0.
    pub(crate) const fn index(&mut self, length: usize) -> usize {
        (self.next() % length as u64) as usize
    }

    /// True `percent` times in a hundred.
    pub(crate) const fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of a list that is not empty.
    pub(crate) fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.index(list.len())]
    }

    /// One of a list, each as often as its weight says.
    pub(crate) fn weighted<T: Copy>(&mut self, list: &[(u64, T)]) -> T {
        let mut left = self.below(list.iter().map(|(weight, _)| weight).sum());
        for &(weight, item) in list {
            if left < weight {
                return item;
            }
            left -= weight;
        }
        list[list.len() - 1].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        let mut rng = Rng::new(1_234_567);
        assert_eq!([rng.next(), rng.next()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn weights_are_kept() {
        let mut rng = Rng::new(1);
        let heads = (0..4000).filter(|_| rng.weighted(&[(3, true), (1, false), (0, false)])).count();
        assert!((2800..3200).contains(&heads), "{heads}");
    }
}
