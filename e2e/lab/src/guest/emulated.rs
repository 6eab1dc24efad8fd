//! Settings that make an emulated machine faster. Measured with QEMU 7.2 without KVM, kernel 6.1, 2 processors.

/// The processor model. With `erms` the kernel and the C library copy and clear memory by `rep movsb` and `rep
/// stosb`, which are emulated byte by byte (64 KiB: 95 µs, without it 18 µs). With `la57` page tables have a fifth
/// level, which is walked in software.
pub(crate) const CPU: &str = "max,-erms,-la57";

/// Kernel command line. Without `tsc=reliable` the kernel takes the small differences between emulated processors for
/// faults and reads an emulated device instead of the counter: 1,500 ns for each read of the clock, during which no
/// other processor can access a device; with it 90 ns. Mitigations protect nothing here.
pub(crate) const KERNEL: &str = "mitigations=off tsc=reliable";
