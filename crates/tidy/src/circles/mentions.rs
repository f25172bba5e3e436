//! What the code of one module names, calls and defines: its child modules and its tests left out.

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::{
    Attribute, Expr, ExprMethodCall, FnArg, ImplItem, ImplItemFn, Item, ItemImpl, ItemMod, ItemUse, Macro, Signature,
    Token, TraitItemFn, UseTree, Visibility,
    punctuated::Punctuated,
    visit::{self, Visit},
};

/// A path as it is written: `crate`, `super` and `self` are not resolved.
pub(super) type Path = Vec<String>;

/// What stands in the code of one module.
#[derive(Default)]
pub(super) struct Mentions {
    /// Paths in `use` statements that export nothing.
    pub(super) uses: Vec<(Path, usize)>,
    /// Other paths, with the lines they stand in.
    pub(super) paths: Vec<(Path, usize)>,
    pub(super) calls: Vec<Call>,
    pub(super) methods: Vec<Method>,
}

/// A method or associated function.
pub(super) struct Method {
    pub(super) name: String,
    /// `self` not counted.
    pub(super) arguments: usize,
    /// Whether other crates may call it: where its type or trait is known to them, which is not looked at.
    pub(super) is_public: bool,
}

/// A call of a method.
pub(super) struct Call {
    pub(super) name: String,
    /// `self` not counted.
    pub(super) arguments: usize,
    pub(super) line: usize,
}

/// One name of a `use` statement.
pub(super) struct Import {
    pub(super) path: Path,
    /// What it is called here; nothing for all names of a module.
    pub(super) name: Option<String>,
    line: usize,
}

impl Mentions {
    pub(super) fn of(items: &[&Item]) -> Self {
        let mut mentions = Self::default();
        items.iter().for_each(|item| mentions.visit_item(item));
        mentions
    }

    /// Names in what a macro is given, or made of, where that is no list of expressions.
    fn scan(&mut self, tokens: TokenStream) {
        let mut path = Path::new();
        let mut colons = 0;
        let mut line = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.end(&mut path, line);
                    }
                    line = ident.span().start().line;
                    path.push(plain(&ident));
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                other => {
                    self.end(&mut path, line);
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.scan(group.stream());
                    }
                }
            }
        }
        self.end(&mut path, line);
    }

    fn end(&mut self, path: &mut Path, line: usize) {
        if !path.is_empty() {
            self.paths.push((std::mem::take(path), line));
        }
    }

    fn define(&mut self, signature: &Signature, is_public: bool) {
        let arguments = signature.inputs.iter().filter(|argument| matches!(argument, FnArg::Typed(_))).count();
        self.methods.push(Method { name: plain(&signature.ident), arguments, is_public });
    }
}

impl<'ast> Visit<'ast> for Mentions {
    /// Another module.
    fn visit_item_mod(&mut self, _: &'ast ItemMod) {}

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if matches!(item.vis, Visibility::Inherited) {
            self.uses.extend(imports(item).into_iter().map(|import| (import.path, import.line)));
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        // `::name` is another crate.
        if let (None, Some(first)) = (&path.leading_colon, path.segments.first()) {
            let line = first.ident.span().start().line;
            self.paths.push((path.segments.iter().map(|segment| plain(&segment.ident)).collect(), line));
        }
        visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        let (name, line) = (plain(&call.method), call.method.span().start().line);
        self.calls.push(Call { name, arguments: call.args.len(), line });
        visit::visit_expr_method_call(self, call);
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        for inner in &item.items {
            if let ImplItem::Fn(method) = inner
                && !method.attrs.iter().any(is_for_tests)
            {
                self.define(&method.sig, item.trait_.is_some() || matches!(method.vis, Visibility::Public(_)));
            }
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if !item.attrs.iter().any(is_for_tests) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        self.define(&item.sig, true);
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.visit_path(&call.path);
        match call.parse_body_with(Punctuated::<Expr, Token![,]>::parse_terminated) {
            // The calls of what is parsed here live no longer than this call.
            Ok(given) => {
                let mut inside = Mentions::default();
                given.iter().for_each(|expression| inside.visit_expr(expression));
                self.uses.append(&mut inside.uses);
                self.paths.append(&mut inside.paths);
                self.calls.append(&mut inside.calls);
            }
            Err(_) => self.scan(call.tokens.clone()),
        }
    }
}

/// The names of a `use` statement.
pub(super) fn imports(item: &ItemUse) -> Vec<Import> {
    let mut found = Vec::new();
    if item.leading_colon.is_none() {
        expand(&item.tree, &mut Path::new(), &mut found);
    }
    found
}

fn expand(tree: &UseTree, before: &mut Path, found: &mut Vec<Import>) {
    let mut add = |ident: &Ident, bound: &Ident| {
        let mut path = before.clone();
        // `a::{self}` is `a`.
        if ident != "self" || path.is_empty() {
            path.push(plain(ident));
        }
        let name = if bound == "self" { path.last().cloned() } else { Some(plain(bound)) };
        found.push(Import { path, name, line: ident.span().start().line });
    };
    match tree {
        UseTree::Name(name) => add(&name.ident, &name.ident),
        UseTree::Rename(renamed) => add(&renamed.ident, &renamed.rename),
        UseTree::Glob(glob) => {
            let line = glob.star_token.spans[0].start().line;
            found.push(Import { path: before.clone(), name: None, line });
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| expand(tree, before, found)),
        UseTree::Path(path) => {
            before.push(plain(&path.ident));
            expand(&path.tree, before, found);
            before.pop();
        }
    }
}

/// An identifier without the mark that lets it be a keyword.
pub(super) fn plain(ident: &Ident) -> String {
    ident.to_string().trim_start_matches("r#").to_owned()
}

/// Whether an item is there in tests or for the fuzzer only.
pub(super) fn is_for_tests(attribute: &Attribute) -> bool {
    fn names(tokens: TokenStream) -> Vec<String> {
        tokens
            .into_iter()
            .flat_map(|token| match token {
                TokenTree::Group(group) => names(group.stream()),
                TokenTree::Ident(ident) => vec![ident.to_string()],
                _ => Vec::new(),
            })
            .collect()
    }
    let Ok(list) = attribute.meta.require_list() else { return false };
    let inside = names(list.tokens.clone());
    let says = |word: &str| inside.iter().any(|name| name == word);
    list.path.is_ident("cfg") && (says("test") || says("fuzzing")) && !says("not")
}
