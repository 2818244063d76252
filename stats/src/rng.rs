//! The generator behind resampling. Our own, so that a recorded seed gives the same numbers for ever.

/// xoshiro256++ (Blackman & Vigna 2019), seeded by SplitMix64.
#[derive(Debug, Clone)]
pub struct Rng([u64; 4]);

impl Rng {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        Self([next(), next(), next(), next()])
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number from 0 to below `n`, `n` > 0 (multiply-shift; the bias is below n/2⁶⁴).
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next_u64()) * n as u128) >> 64) as usize
    }

    /// A number from 0 to below 1.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A standard normal number (Box–Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        // SplitMix64 from seed 0 starts e220a8397b1dcdaf, 6e789e6aa1b965f4, 06c45d188009454f, f88bb8a8724c81ec.
        let mut rng = Rng::new(0);
        assert_eq!(rng.0, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f, 0xf88b_b8a8_724c_81ec]);
        let first = rng.next_u64();
        assert_eq!(first, 0x5317_5d61_490b_23df);
        // xoshiro256++ from the state 1, 2, 3, 4 (reference implementation).
        let mut reference = Rng([1, 2, 3, 4]);
        assert_eq!([reference.next_u64(), reference.next_u64(), reference.next_u64()], [41_943_041, 58_720_359, 3_588_806_011_781_223]);
    }

    #[test]
    fn numbers_below_n_cover_the_range() {
        let mut rng = Rng::new(1);
        let mut seen = [0_u32; 7];
        for _ in 0..7000 {
            seen[rng.below(7)] += 1;
        }
        assert!(seen.iter().all(|n| (850..1150).contains(n)), "{seen:?}");
    }
}
