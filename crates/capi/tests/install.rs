//! What `scripts/install` puts where, and the lines of the documentation that use it, as they stand there.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

/// A folder that looks like a clone, with a user's home in it.
struct Clone {
    folder: tempfile::TempDir,
}

impl Clone {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        symlink(root().join("scripts"), folder.path().join("scripts")).unwrap();
        Self { folder }
    }

    /// Runs lines of a shell, with what was built for this test; what they printed.
    fn run(&self, lines: &str) -> String {
        let mut shell = Command::new("sh");
        shell.args(["-e", "-c", lines]).current_dir(&self.folder).env("HOME", self.folder.path());
        shell.env("BUILT", std::env::current_exe().unwrap().parent().unwrap());
        let output = shell.output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{lines}\n{}\n{out}{err}", output.status);
        out.into_owned()
    }

    /// Writes a program, and does with it what the page says, and then this.
    fn follow(&self, (name, program): (&str, &str), page: &str, then: &str) -> String {
        fs::write(self.folder.path().join(name), program).unwrap();
        let lines = fenced(page, "sh").find(|lines| lines.contains("scripts/install")).expect("the page installs it");
        self.run(&format!("{lines}\n{then}"))
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// The blocks of a page in one language.
fn fenced<'a>(page: &'a str, language: &'a str) -> impl Iterator<Item = &'a str> {
    let fence = format!("```{language}\n");
    page.match_indices("```").filter_map(move |(at, _)| page[at..].strip_prefix(&fence)?.split("```").next())
}

#[test]
fn the_program_of_the_book_is_built_by_the_lines_of_the_book() {
    let page = text("docs/EMBEDDING.md");
    let program = fenced(&page, "c").next().expect("the page has a program");
    assert_eq!(Clone::new().follow(("a.c", program), &page, "./a.out"), "<html>");
}

#[test]
fn the_example_is_built_by_the_lines_of_its_readme() {
    let program = text("crates/capi/examples/pages.c");
    let printed = Clone::new().follow(("pages.c", &program), &text("crates/capi/README.md"), "./pages example.store");
    let expected = "page: <html>, group 1\nimage: picaflor, in the middle of 1048576 bytes\ndeleted: PICAFLOR_ABSENT\n";
    assert_eq!(printed, expected);
}

#[test]
fn the_library_has_a_soname_and_its_symbols_are_apart() {
    let clone = Clone::new();
    clone.run("DESTDIR=$HOME/package scripts/install c /usr");
    let within = |lines: &str| clone.run(&format!("cd package/usr/lib; {lines}"));
    assert!(within("readelf -d libpicaflor_c.so").contains("Library soname: [libpicaflor_c.so.0]"));
    assert_eq!(
        within("readlink -f libpicaflor_c.so.0 | xargs basename").trim(),
        concat!("libpicaflor_c.so.", env!("CARGO_PKG_VERSION"))
    );
    assert!(!within("readelf -S libpicaflor_c.so").contains(".debug_line"));
    assert!(within("readelf -S .debug/libpicaflor_c.so.*.debug").contains(".debug_line"));
    // A debugger finds them by a name and a checksum of the file.
    assert!(within("readelf -p .gnu_debuglink libpicaflor_c.so").contains("libpicaflor_c.so."));
    assert!(within("cat pkgconfig/picaflor.pc").starts_with("prefix=/usr\n"));
}

/// By the lines of the README, for C and for C++17, with either library; another version is refused.
#[test]
fn cmake_finds_it() {
    let clone = Clone::new();
    let page = text("crates/capi/README.md");
    let lines = fenced(&page, "cmake").next().expect("the page has lines for CMake");
    let pages = text("crates/capi/examples/pages.c");
    fs::write(clone.folder.path().join("pages.c"), &pages).unwrap();
    let program = "#include <cstdio>\n#include <picaflor.h>\nint main() { std::printf(\"%u\\n\", \
                   static_cast<unsigned>(picaflor_interface())); }\n";
    fs::write(clone.folder.path().join("interface.cpp"), program).unwrap();
    let list = format!(
        "cmake_minimum_required(VERSION 3.16)\nproject(pages C CXX)\nset(CMAKE_CXX_STANDARD 17)\n\
         add_executable(pages pages.c)\n{lines}add_executable(interface interface.cpp)\n\
         target_link_libraries(interface PRIVATE picaflor::picaflor_static)\n"
    );
    fs::write(clone.folder.path().join("CMakeLists.txt"), &list).unwrap();
    let build = "cmake -S . -B out -DCMAKE_PREFIX_PATH=$HOME/prefix >&2";
    let printed = clone.run(&format!(
        "scripts/install c $HOME/prefix\n{build}\ncmake --build out >&2\nout/interface; out/pages example.store"
    ));
    assert!(printed.starts_with(&format!("{}\npage: <html>, group 1\n", picaflor_c::INTERFACE)), "{printed}");
    for version in ["0.2", "1", "0.1.99"] {
        let other = list.replace("picaflor 0.1 ", &format!("picaflor {version} "));
        fs::write(clone.folder.path().join("CMakeLists.txt"), other).unwrap();
        let said = clone.run(&format!("if {build} 2>said; then echo found; else cat said; fi"));
        assert!(said.contains("compatible with requested") && said.contains("0.1.0"), "{said}");
    }
}
