//! Source files that are included here take their atomics from loom.

fn main() {
    println!("cargo::rustc-cfg=loom");
}
