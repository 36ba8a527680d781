//! The static part of SPECweb99: which files there are and how often each is asked for.
//!
//! Four classes of nine files; file k of a class is k times the class's unit. Directories of about 5 MB are chosen by
//! Zipf with alpha 1. The benchmark's dynamic 30 % is left out.

/// Share of requests for each class.
const CLASS_SHARE: [f64; 4] = [0.35, 0.50, 0.14, 0.01];
/// Length of the smallest file of each class: 0.1, 1, 10 and 100 KB.
const CLASS_UNIT_BYTES: [u64; 4] = [102, 1_024, 10_240, 102_400];
/// Share of requests for each file within its class, in percent.
const FILE_SHARE_PERCENT: [f64; 9] = [3.9, 5.9, 8.8, 17.7, 35.3, 11.8, 7.1, 5.0, 4.5];

/// One file of the set.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SetFile {
    /// Path below the root, without a leading slash.
    pub(crate) path: String,
    pub(crate) bytes: u64,
    /// How often it is asked for, relative to the others.
    pub(crate) weight: f64,
}

/// All files of `directories` directories, most popular directory first.
pub(crate) fn files(directories: u32) -> Vec<SetFile> {
    let mut files = Vec::new();
    for directory in 0..directories {
        let popularity = 1.0 / f64::from(directory + 1);
        for (class, (unit_bytes, class_share)) in CLASS_UNIT_BYTES.into_iter().zip(CLASS_SHARE).enumerate() {
            for (file, share_percent) in (1..=9).zip(FILE_SHARE_PERCENT) {
                files.push(SetFile {
                    path: format!("dir{directory:05}/class{class}_{file}"),
                    bytes: unit_bytes * file,
                    weight: popularity * class_share * share_percent,
                });
            }
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_about_5_mb() {
        let bytes: u64 = files(1).iter().map(|file| file.bytes).sum();
        assert!((4_900_000..5_300_000).contains(&bytes), "{bytes}");
    }

    #[test]
    fn the_first_directory_is_twice_as_popular_as_the_second() {
        let files = files(2);
        assert_eq!(files.len(), 72);
        let of = |prefix: &str| -> f64 {
            files.iter().filter(|file| file.path.starts_with(prefix)).map(|file| file.weight).sum()
        };
        assert!((of("dir00000/") / of("dir00001/") - 2.0).abs() < 1e-9);
        let class_1: f64 = files[9..18].iter().map(|file| file.weight).sum();
        assert!((class_1 / of("dir00000/") - 0.5).abs() < 1e-9);
    }
}
