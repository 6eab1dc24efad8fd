//! The lab program.

fn main() -> std::process::ExitCode {
    portolan_lab::main()
}
