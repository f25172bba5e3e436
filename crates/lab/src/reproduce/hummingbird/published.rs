//! Tables 2 to 5 of the paper.

/// A row of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Published {
    pub(super) table: u8,
    pub(super) system: &'static str,
    pub(super) disk_gib: u64,
    /// MiB: wg-Squid's own, and the buffer cache's.
    pub(super) memory: (u64, u64),
    pub(super) hit: f64,
    pub(super) read_ms: f64,
    pub(super) write_ms: f64,
    pub(super) ios: f64,
    pub(super) io_ms: f64,
    /// Not in Table 2.
    pub(super) seconds: Option<f64>,
}

/// What all rows of a part of a table have in common, and the rows: hit ratio, read and write time, I/Os, their time,
/// run time.
macro_rules! rows {
    ($($table:literal, $disk:literal, ($own:literal + $buffers:literal):
        $($system:literal $hit:literal $read:literal $write:literal $ios:literal $io:literal
            $($seconds:literal)?),+;)+) => {
        pub(super) const ROWS: &[Published] = &[$($(Published {
            table: $table, system: $system, disk_gib: $disk, memory: ($own, $buffers), hit: $hit, read_ms: $read,
            write_ms: $write, ios: $ios, io_ms: $io, seconds: seconds!($($seconds)?),
        }),+),+];
    };
}

macro_rules! seconds {
    () => {
        None
    };
    ($seconds:literal) => {
        Some($seconds)
    };
}

rows! {
    2, 4, (128 + 128):
        "hummingbird" 0.62 1.81 0.32 1_161_163.0 5.14, "ufs-async" 0.64 6.13 2.54 4_807_440.0 4.66,
        "ufs-soft" 0.64 5.54 21.07 10_737_300.0 4.97, "ufs" 0.64 5.93 20.77 10_238_460.0 5.02;
    2, 4, (512 + 512):
        "hummingbird" 0.63 1.05 0.03 552_882.0 5.75, "ufs-async" 0.64 3.21 2.35 3_217_440.0 3.95,
        "ufs-soft" 0.64 3.27 20.85 9_714_420.0 4.76, "ufs" 0.64 3.92 18.43 9_022_200.0 4.63;
    2, 8, (128 + 128):
        "hummingbird" 0.64 2.03 0.32 1_194_494.0 5.64, "ufs-async" 0.67 5.69 1.47 4_605_360.0 4.34,
        "ufs-soft" 0.67 5.78 15.66 9_058_141.0 4.86, "ufs" 0.67 6.17 12.83 8_313_360.0 4.63;
    2, 8, (512 + 512):
        "hummingbird" 0.64 1.20 0.03 578_562.0 6.37, "ufs-async" 0.67 4.05 1.34 3_561_180.0 4.13,
        "ufs-soft" 0.67 3.74 15.65 8_148_721.0 4.62, "ufs" 0.67 3.81 15.70 7_611_840.0 4.68;
    3, 4, (128 + 128):
        "hummingbird" 0.60 1.68 0.39 1_349_175.0 4.17 6362.0, "ufs-async" 0.62 6.61 2.88 5_134_380.0 4.72 25_510.0,
        "ufs-soft" 0.62 5.81 22.91 11_858_100.0 5.02 59_475.0, "ufs" 0.62 6.13 22.67 11_283_060.0 5.05 59_807.0;
    3, 4, (512 + 512):
        "hummingbird" 0.61 0.88 0.52 630_362.0 5.62 6030.0, "ufs-async" 0.62 3.67 2.70 3_919_620.0 3.98 16_384.0,
        "ufs-soft" 0.62 3.51 22.89 10_868_700.0 4.84 52_377.0, "ufs" 0.62 4.24 20.23 10_115_400.0 4.69 49_749.0;
    3, 8, (128 + 128):
        "hummingbird" 0.64 2.17 0.40 1_464_727.0 5.03 7923.0, "ufs-async" 0.66 6.42 2.30 5_017_920.0 4.67 24_657.0,
        "ufs-soft" 0.66 6.14 19.31 10_461_841.0 4.98 51_797.0, "ufs" 0.66 7.37 16.42 9_954_540.0 4.89 51_062.0;
    3, 8, (512 + 512):
        "hummingbird" 0.62 1.18 0.51 695_771.0 6.41 6802.0, "ufs-async" 0.66 4.66 1.90 4_016_400.0 4.32 18_240.0,
        "ufs-soft" 0.67 3.69 15.71 8_158_080.0 4.61 37_097.0, "ufs" 0.66 4.24 18.90 8_894_760.0 4.82 45_044.0;
    4, 4, (50 + 206):
        "hummingbird" 0.62 2.82 0.20 922_871.0 9.85 9926.0, "efs" 0.62 14.79 46.38 10_784_969.0 10.99 128_878.0,
        "xfs" 0.62 14.97 16.56 10_870_353.0 6.67 75_565.0;
    4, 4, (128 + 128):
        "efs" 0.62 14.08 48.33 10_540_778.0 11.37 130_359.0, "xfs" 0.62 14.90 13.95 10_115_369.0 6.72 70_746.0;
    4, 9, (50 + 206):
        "hummingbird" 0.66 3.30 0.21 1_028_922.0 10.77 11_861.0, "xfs" 0.66 15.47 12.39 9_558_954.0 7.02 69_929.0;
    4, 9, (128 + 128): "xfs" 0.66 15.65 8.80 8_737_878.0 7.12 64_726.0;
    4, 15, (50 + 206):
        "hummingbird" 0.67 3.71 0.21 1_049_121.0 11.92 13_313.0, "xfs" 0.67 16.71 5.73 8_103_576.0 7.60 63_371.0;
    4, 15, (128 + 128): "xfs" 0.67 15.91 5.79 7_841_184.0 7.55 60_943.0;
    5, 4, (128 + 128):
        "hummingbird" 0.64 4.86 1.34 1_478_005.0 11.68 11_743.0, "ufs-async" 0.66 5.92 6.39 5_638_201.0 10.72 30_427.0,
        "ufs-soft" 0.66 3.25 20.42 9_405_301.0 9.76 45_655.0, "ufs" 0.66 6.71 15.86 10_771_201.0 9.05 48_577.0;
    5, 8, (128 + 128):
        "hummingbird" 0.67 6.12 1.40 1_556_169.0 14.08 12_997.0, "ufs-async" 0.67 6.19 5.18 5_466_061.0 10.67 29_354.0,
        "ufs-soft" 0.67 6.04 14.67 8_678_761.0 10.52 44_622.0, "ufs" 0.67 6.78 9.73 8_903_641.0 8.74 38_464.0;
}
