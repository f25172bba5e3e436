//! Gives the shared library its SONAME: a program asks for this major version, whatever the file is called.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpicaflor_c.so.{}", env!("CARGO_PKG_VERSION_MAJOR"));
}
