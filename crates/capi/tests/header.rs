//! The header and the library are one: functions, numbers, layouts. And what a C program sees of them, compiled here
//! with every warning an error, linked both ways, as it is and under the sanitizers.

use std::{
    collections::BTreeSet,
    ffi::c_int,
    fs,
    mem::offset_of,
    os::unix::{fs::symlink, net::UnixListener},
    path::{Path, PathBuf},
    process::Command,
};

use picaflor::Store;
use picaflor_c::{COptions, CWriteOptions, Code, INTERFACE};
use picaflor_shared::Limits;

const HEADER: &str = include_str!("../include/picaflor.h");

/// Where cargo has put the libraries that belong to this test.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its file");
    let folder = test.parent().expect("a file is in a folder").to_owned();
    for library in ["libpicaflor_c.a", "libpicaflor_c.so"] {
        assert!(folder.join(library).exists(), "{library} is not in {}", folder.display());
    }
    folder
}

fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a program to its end and returns what it printed.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}; scripts/packages installs it"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out.into_owned()
}

/// Compiles a C program of this crate against the header.
fn compile(source: &str, to: &Path, extra: &[&str]) {
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion", "-O1", "-g"]);
    cc.arg("-I").arg(crate_folder().join("include")).arg(crate_folder().join(source));
    cc.arg("-o").arg(to).args(extra);
    run(&mut cc);
}

/// Compiles one of the programs that use the library.
fn program(source: &str, folder: &Path, link: &[String]) -> PathBuf {
    let program = folder.join("program");
    compile(source, &program, &link.iter().map(String::as_str).collect::<Vec<_>>());
    program
}

/// Linked dynamically, with reads and writes outside of objects, undefined behaviour and leaks looked for. The library
/// gets the name that programs ask for in this folder.
fn sanitized(folder: &Path) -> Vec<String> {
    let library = libraries();
    symlink(library.join("libpicaflor_c.so"), folder.join("libpicaflor_c.so.0")).expect("a link can be made");
    let flags = "-fsanitize=address,undefined -fno-sanitize-recover=all".split(' ').map(str::to_owned);
    let library = [format!("-L{}", library.display()), format!("-Wl,-rpath,{}", folder.display())];
    flags.chain(library).chain(["-lpicaflor_c", "-lpthread"].map(str::to_owned)).collect()
}

#[test]
fn a_c_program_uses_every_call_linked_statically() {
    let folder = tempfile::tempdir().unwrap();
    let library = libraries().join("libpicaflor_c.a").display().to_string();
    let link = [library.as_str(), "-lpthread", "-ldl", "-lm"].map(str::to_owned);
    let program = program("tests/c/program.c", folder.path(), &link);
    assert_eq!(run(Command::new(program).arg(folder.path().join("store"))), "done\n");
}

#[test]
fn and_linked_dynamically_under_the_sanitizers() {
    let folder = tempfile::tempdir().unwrap();
    let program = program("tests/c/program.c", folder.path(), &sanitized(folder.path()));
    assert_eq!(run(Command::new(program).arg(folder.path().join("store"))), "done\n");
}

#[test]
fn the_same_calls_reach_a_store_that_another_process_serves() {
    let folder = tempfile::tempdir().unwrap();
    let options = picaflor_literature::preset("damelo").unwrap();
    let store = Store::open(options.place(folder.path().join("store")).capacity(64 << 20)).unwrap();
    let socket = folder.path().join("store.sock");
    let server = picaflor_shared::serve(store, &socket, Limits::default()).unwrap();
    let program = program("tests/c/served.c", folder.path(), &sanitized(folder.path()));
    assert_eq!(run(Command::new(&program).arg(&socket)), "done\n");
    server.stop();
    // As a server that was killed leaves it.
    drop(UnixListener::bind(&socket).unwrap());
    assert_eq!(run(Command::new(program).arg(socket).arg("gone")), "done\n");
}

#[test]
fn which_notice_an_object_that_was_not_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let program = program("tests/c/leak.c", folder.path(), &sanitized(folder.path()));
    // The library has no frame pointers: only the slow way back finds its functions.
    let mut program = Command::new(program);
    let output =
        program.arg(folder.path().join("store")).env("ASAN_OPTIONS", "fast_unwind_on_malloc=0").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("detected memory leaks"), "{}: {said}", output.status);
    assert!(said.contains("picaflor_read"), "{said}");
}

#[test]
fn exported_symbols_are_the_headers_functions() {
    let symbols = run(Command::new("nm").args(["-D", "--defined-only"]).arg(libraries().join("libpicaflor_c.so")));
    let exported: BTreeSet<_> = symbols.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    assert_eq!(exported, declared(), "left what the library exports, right what the header declares");
}

/// Names of the functions that the header declares, comments aside.
fn declared() -> BTreeSet<&'static str> {
    let mut names = BTreeSet::new();
    let mut rest = HEADER;
    while let Some(end) = rest.find("/*") {
        let (code, comment) = rest.split_at(end);
        for (at, _) in code.match_indices('(') {
            let start = code[..at].rfind(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).map_or(0, |at| at + 1);
            names.extend(Some(&code[start..at]).filter(|name| name.starts_with("picaflor_")));
        }
        rest = &comment[comment.find("*/").expect("a comment ends") + 2..];
    }
    let tail = rest.match_indices("picaflor_").map(|(at, _)| &rest[at..]);
    names.extend(tail.filter_map(|text| text.split_once('(').map(|(name, _)| name)));
    names
}

#[test]
fn the_header_is_read_as_meant() {
    let names = declared();
    assert!(names.contains("picaflor_open") && names.contains("picaflor_interface"), "{names:?}");
    // A word of a comment, a type, a macro: none of them is a function.
    assert!(!names.contains("picaflor_options") && names.len() == 30, "{}: {names:?}", names.len());
}

#[test]
fn numbers_and_layouts_are_the_librarys() {
    let folder = tempfile::tempdir().unwrap();
    let layout = folder.path().join("layout");
    compile("tests/c/layout.c", &layout, &[]);
    let mut expected = String::new();
    let mut line = |name: &str, number: c_int| expected.push_str(&format!("{name} {number}\n"));
    macro_rules! fields {
        ($c:literal $rust:ident: $($field:ident)+) => {
            line(concat!("sizeof ", $c), size_of::<$rust>() as c_int);
            $(line(concat!($c, ".", stringify!($field)), offset_of!($rust, $field) as c_int);)+
        };
    }
    fields!("picaflor_options" COptions: size preset capacity memory mode durability bound_time bound_puts delete_time
        delete_count default_ttl cluster open_buffers read_only more_count more_places reopening reserved unpacked
        pack_order next_cluster cluster_age daemons cluster_age_time);
    fields!("picaflor_write_options" CWriteOptions: size group server ttl metadata metadata_len neighbour neighbour_len
        no_wait reserved);
    // Interface 3 ended there, padded to a multiple of eight; what a caller of it has in the padding is not looked at.
    assert_eq!((offset_of!(COptions, reopening), offset_of!(COptions, unpacked)), (104, 112));
    // No byte is padding, so that a field that comes later cannot be taken from what an older caller left there.
    assert_eq!((size_of::<COptions>(), size_of::<CWriteOptions>()), (144, 64));
    line("PICAFLOR_INTERFACE", INTERFACE as c_int);
    for code in Code::ALL {
        line(code.name().to_str().unwrap(), *code as c_int);
    }
    assert_eq!(run(&mut Command::new(layout)), expected);
}

#[test]
fn old_and_new_compilers_take_the_header() {
    let folder = tempfile::tempdir().unwrap();
    let text = "#include \"picaflor.h\"\nstatic picaflor_options a = PICAFLOR_OPTIONS_INIT;\n\
                static picaflor_write_options b = PICAFLOR_WRITE_OPTIONS_INIT;\n\
                int main(void) { return a.size == b.size; }\n";
    // Without -Wextra, to which in C++ an initializer that names not every field is an unfinished one.
    for (compiler, standard, name) in
        [("cc", "c89", "a.c"), ("cc", "c11", "a.c"), ("c++", "c++17", "a.cpp"), ("c++", "c++20", "a.cpp")]
    {
        fs::write(folder.path().join(name), text).unwrap();
        let mut command = Command::new(compiler);
        command.arg(format!("-std={standard}")).args(["-pedantic", "-Wall", "-Werror", "-fsyntax-only", "-I"]);
        run(command.arg(crate_folder().join("include")).arg(folder.path().join(name)));
    }
}
