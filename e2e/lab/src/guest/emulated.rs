//! What makes an emulated machine faster. Figures: QEMU 7.2 without KVM, kernel 6.1, 2 processors.

/// The model of its processors. With `erms` the kernel and the C library copy and clear memory by `rep movsb` and
/// `rep stosb`, which are emulated byte by byte (64 KiB: 95 µs, without it 18 µs). With `la57` page tables have a
/// fifth level, which is walked by software.
pub(crate) const CPU: &str = "max,-erms,-la57";

/// For the kernel's command line. Without `tsc=reliable` it takes the small differences between emulated processors
/// for faults and reads an emulated device instead of the counter: 1,500 ns for each look at the clock, and no other
/// processor may reach a device meanwhile; with it 90 ns. Mitigations have nothing to protect here.
pub(crate) const KERNEL: &str = "mitigations=off tsc=reliable";
