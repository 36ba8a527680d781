//! Reading many entries of a hash map in one call, which the loader's crate doesn't offer.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};

use aya::Pod;

use super::layout::RawKey;

/// Where to go on reading: the kernel's, and of no meaning to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place(u32);

/// Some entries, and where to go on unless these were the last.
pub type Batch<E> = (Vec<E>, Option<Place>);

/// The kernel reads whole buckets; one with more entries than this couldn't be read.
const COUNT_MIN: u32 = 256;

/// The part of `union bpf_attr` for the batch commands (include/uapi/linux/bpf.h).
#[repr(C)]
struct BatchAttributes {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map: u32,
    element_flags: u64,
    flags: u64,
}

/// Some `count` entries, whose values have the size of `V`.
///
/// # Errors
/// Those of bpf(2).
pub(super) fn read<V: Pod + Default>(
    map: BorrowedFd<'_>,
    from: Option<Place>,
    count: u32,
) -> io::Result<Batch<(RawKey, V)>> {
    const BPF_MAP_LOOKUP_BATCH: libc::c_long = 24;
    let count = count.max(COUNT_MIN);
    let blank = RawKey { client: [0; 16], vip: [0; 16], client_port: [0; 2], vip_port: [0; 2] };
    let mut keys = vec![blank; count as usize];
    let mut values = vec![V::default(); count as usize];
    let start = from.map_or(0, |place| place.0);
    let mut next = 0u32;
    let mut attributes = BatchAttributes {
        in_batch: if from.is_some() { (&raw const start) as u64 } else { 0 },
        out_batch: (&raw mut next) as u64,
        keys: keys.as_mut_ptr() as u64,
        values: values.as_mut_ptr() as u64,
        count,
        map: map.as_raw_fd().cast_unsigned(),
        element_flags: 0,
        flags: 0,
    };
    // SAFETY: pointer and length describe `attributes`; what it points to lives through the call and has room for `count` entries, whose sizes
    // are those of the map (checked when it was loaded); every pattern of bytes is a key and a value.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_MAP_LOOKUP_BATCH, &raw mut attributes, mem::size_of::<BatchAttributes>())
    };
    let is_last = if result == 0 {
        false
    } else {
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ENOENT) {
            return Err(error);
        }
        true
    };
    let read = attributes.count as usize;
    keys.truncate(read);
    Ok((keys.into_iter().zip(values).collect(), (!is_last).then_some(Place(next))))
}
