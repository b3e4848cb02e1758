//! A new migration file is part of the program although no source line changed.

fn main() {
    println!("cargo:rerun-if-changed=../migrations");
}
