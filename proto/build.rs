//! Compiles the .proto files in Rust, so that no installed protoc is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=portolan");
    let files = [
        "portolan/plan/v1/entry.proto",
        "portolan/plan/v1/saved.proto",
        "portolan/plan/v1/stream.proto",
    ];
    let descriptors = protox::compile(files, ["."])?;
    let feature = |name: &str| std::env::var_os(format!("CARGO_FEATURE_{name}")).is_some();
    tonic_prost_build::configure()
        .bytes(".portolan.plan.v1.Part")
        .bytes(".portolan.plan.v1.Upsert")
        .bytes(".portolan.plan.v1.Items")
        // Its token must not appear in any log; the crate has its own implementation.
        .skip_debug([".portolan.plan.v1.Renewal"])
        .build_client(feature("CLIENT"))
        .build_server(feature("SERVER"))
        .build_transport(false)
        .codec_path("crate::PlanCodec")
        .compile_fds(descriptors)?;
    Ok(())
}
