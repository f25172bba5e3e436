//! A Rust file with its strings and comments told apart from its code, so that a rule about code is not set
//! off by a message, nor a rule about comments by a string.
//!
//! This is a scanner, not a parser: it knows comments, string, byte and character literals, and braces.

/// The views of one file. `code` and `prose` have the length and the lines of the original.
pub(crate) struct Source {
    /// Comments and the contents of literals blanked.
    pub(crate) code: String,
    /// Only the contents of literals blanked.
    pub(crate) prose: String,
    /// For each line, whether it is inside an inline `#[cfg(test)]` item.
    test_lines: Vec<bool>,
}

impl Source {
    pub(crate) fn scan(text: &str) -> Self {
        let (code, prose) = mask(text);
        let test_lines = test_lines(&code);
        Self { code, prose, test_lines }
    }

    /// Whether a line, from 1, is inside an inline test module.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.test_lines.get(line - 1).copied().unwrap_or(false)
    }

    /// Lines outside inline test modules.
    pub(crate) fn production_lines(&self) -> usize {
        self.test_lines.iter().filter(|test| !**test).count()
    }
}

/// Line, from 1, of a byte position.
pub(crate) fn line_of(text: &str, position: usize) -> usize {
    text.as_bytes()[..position].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Positions of `word` where it stands alone, not as a part of a longer identifier.
pub(crate) fn whole_words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let part = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    text.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let bytes = text.as_bytes();
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        let longer_left = part(before) && part(word.as_bytes().first());
        let longer_right = part(bytes.get(at + word.len())) && part(word.as_bytes().last());
        !longer_left && !longer_right
    })
}

/// Blanks literals in both views and comments in the first.
fn mask(text: &str) -> (String, String) {
    let bytes = text.as_bytes();
    let (mut code, mut prose) = (bytes.to_vec(), bytes.to_vec());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        if rest.starts_with(b"//") || rest.starts_with(b"/*") {
            let end = at + comment(rest);
            blank(&mut code[at..end]);
            at = end;
        } else if let Some((open, len)) = literal(rest, at > 0 && is_word(bytes[at - 1])) {
            blank(&mut code[at + open..at + len]);
            blank(&mut prose[at + open..at + len]);
            at += len;
        } else {
            at += 1;
        }
    }
    (String::from_utf8_lossy(&code).into_owned(), String::from_utf8_lossy(&prose).into_owned())
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Blanks everything but line ends. Literals and comments begin and end at ASCII bytes, so no character is cut.
fn blank(bytes: &mut [u8]) {
    bytes.iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
}

/// Length of the comment that `rest` begins with.
fn comment(rest: &[u8]) -> usize {
    if rest.starts_with(b"//") {
        return rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    }
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// Where the contents of the literal that `rest` begins with start, and how long all of it is.
fn literal(rest: &[u8], in_word: bool) -> Option<(usize, usize)> {
    let prefix = rest.iter().take_while(|byte| matches!(byte, b'b' | b'r' | b'c')).count();
    if in_word && prefix > 0 {
        return None;
    }
    let (prefix, raw) = if prefix <= 2 { (prefix, rest[..prefix].contains(&b'r')) } else { (0, false) };
    let hashes = rest[prefix..].iter().take_while(|byte| raw && **byte == b'#').count();
    let open = prefix + hashes + 1;
    match rest.get(open - 1)? {
        b'"' if raw => {
            let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
            let end = rest[open..].windows(close.len()).position(|window| window == close);
            Some((open, end.map_or(rest.len(), |end| open + end + close.len())))
        }
        b'"' => Some((open, quoted(rest, open, b'"'))),
        b'\'' if !raw && is_char(&rest[open..]) => Some((open, quoted(rest, open, b'\''))),
        _ => None,
    }
}

/// Length up to and with the closing quote, escapes skipped.
fn quoted(rest: &[u8], open: usize, quote: u8) -> usize {
    let mut at = open;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// Whether what follows a `'` is a character literal rather than a lifetime.
fn is_char(after: &[u8]) -> bool {
    match after {
        [b'\\', ..] => true,
        [first, ..] if *first >= 0x80 => after.iter().take(5).any(|byte| *byte == b'\''),
        [_, b'\'', ..] => true,
        _ => false,
    }
}

/// Marks the lines of every item under `#[cfg(test)]` that has a body in braces.
fn test_lines(code: &str) -> Vec<bool> {
    let mut lines = vec![false; code.lines().count()];
    for (at, attribute) in code.match_indices("#[cfg(test)]") {
        let Some(end) = item_end(&code[at + attribute.len()..]) else { continue };
        let (first, last) = (line_of(code, at), line_of(code, at + attribute.len() + end));
        lines[first - 1..last].fill(true);
    }
    lines
}

/// Position of the brace that closes the item ahead; nothing for an item that ends with `;`.
fn item_end(code: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b';' if depth == 0 => return None,
            b'{' => depth += 1,
            b'}' if depth == 1 => return Some(at),
            b'}' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_comments_are_told_from_code() {
        let text = concat!(
            "let a = \"in \\\" string\"; // comment \"x\"\n",
            "let b = r#\"raw \" text\"#; /* one /* two */ still */ code();\n",
            "let c = ('\\'', b'x', 'é', '\"'); fn f<'a>(x: &'a str) {}\n",
            "let bar = br\"y\"; number\"\n",
        );
        let source = Source::scan(text);
        for (view, gone, kept) in [
            (&source.code, "string raw comment still two é y", "let code fn str bar"),
            (&source.prose, "string raw é y", "comment still two let code"),
        ] {
            assert_eq!(view.lines().count(), text.lines().count());
            gone.split(' ').for_each(|word| assert_eq!(whole_words(view, word).count(), 0, "{word} in {view}"));
            kept.split(' ').for_each(|word| assert!(view.contains(word), "{word} in {view}"));
        }
        assert_eq!(source.code.len(), text.len());
    }

    #[test]
    fn lines_of_inline_tests_are_known() {
        let source = Source::scan("fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { \"}\"; }\n}\nfn c() {}\n");
        let test: Vec<_> = (1..=6).filter(|line| source.is_test(*line)).collect();
        assert_eq!((test, source.production_lines()), (vec![2, 3, 4, 5], 2));
        assert_eq!(Source::scan("#[cfg(test)]\nmod tests;\nfn a() {}\n").production_lines(), 3);
    }

    #[test]
    fn words_stand_alone() {
        assert_eq!(whole_words("mod a; modest; a.mod", "mod").collect::<Vec<_>>(), [0, 17]);
    }
}
