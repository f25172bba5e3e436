//! Text with `*`, which is any text, in purges and rules. Everything else is itself.

/// Whether it matches. The leftmost place of each piece between two `*` is as good as any other.
pub(crate) fn matches(pattern: &str, text: &[u8]) -> bool {
    let Some((first, pieces)) = pattern.split_once('*') else { return pattern.as_bytes() == text };
    let Some(mut rest) = text.strip_prefix(first.as_bytes()) else { return false };
    let mut pieces = pieces.split('*').peekable();
    while let Some(piece) = pieces.next() {
        let piece = piece.as_bytes();
        if pieces.peek().is_none() {
            return rest.ends_with(piece);
        }
        if piece.is_empty() {
            continue;
        }
        let Some(at) = rest.windows(piece.len()).position(|window| window == piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slowly(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], []) => true,
            ([b'*', rest @ ..], _) => {
                slowly(rest, text) || text.split_first().is_some_and(|(_, text)| slowly(pattern, text))
            }
            ([a, pattern @ ..], [b, text @ ..]) => a == b && slowly(pattern, text),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn it_matches_what_it_says(pattern in "[ab*]{0,8}", text in "[ab]{0,10}") {
            prop_assert_eq!(matches(&pattern, text.as_bytes()), slowly(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
