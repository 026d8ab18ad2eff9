//! Modules of every crate refer to each other in one direction: where two siblings need each other, directly
//! or by way of others, that is listed here with its reason, and a listed cycle that is gone must go from the
//! list.
//!
//! The graph is read from the sources. For every module that has children, its children are the nodes, each
//! with all that lies below it; an edge is any path, in code or in a `use`, that leads from one into another,
//! also by way of a name that a module in between passes on. What is compiled for tests alone is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, UseTree};

/// A path of modules from the root of a crate, which is empty itself.
type ModulePath = Vec<String>;

/// Children of one module that need each other.
struct Cycle {
    krate: &'static str,
    /// Whose children they are: empty for the root.
    of: &'static str,
    members: &'static [&'static str],
    /// Why they do.
    reason: &'static str,
}

const CYCLES: &[Cycle] = &[
    Cycle {
        krate: "gpu",
        of: "",
        members: &["buffer", "device", "graph", "kernel", "pinned", "stream"],
        reason: "The knot of owners: each of them holds, or is held by, every other.",
    },
    Cycle {
        krate: "gpu",
        of: "emulated",
        members: &[
            "access",
            "barrier",
            "block",
            "copy",
            "functions",
            "interruption",
            "launch",
            "mbarrier",
            "module",
            "print",
            "registers",
            "telling",
            "transfer",
            "warp",
            "wgmma",
        ],
        reason: "One state machine, `Launch`, with its methods in the file of their topic.",
    },
];

#[derive(Default)]
struct Module {
    children: BTreeSet<String>,
    /// Names that `use` brings into the module, and what they stand for.
    names: BTreeMap<String, Vec<ModulePath>>,
    /// Paths that the module's code names, as they are written.
    mentions: Vec<Vec<String>>,
}

struct Crate {
    modules: BTreeMap<ModulePath, Module>,
}

impl Crate {
    fn read(source: &Path) -> Self {
        let mut krate = Self { modules: BTreeMap::new() };
        krate.read_file(&source.join("lib.rs"), source.to_owned(), Vec::new());
        krate
    }

    /// Reads a file and the files of its modules, which lie in `folder`.
    fn read_file(&mut self, file: &Path, folder: PathBuf, path: ModulePath) {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.read_items(&parsed.items, folder, path);
    }

    fn read_items(&mut self, items: &[Item], folder: PathBuf, path: ModulePath) {
        let mut mentions = Mentions::default();
        let mut modules = Vec::new();
        for item in items {
            match item {
                Item::Mod(module) if is_for_tests(&module.attrs) => {}
                Item::Mod(module) => modules.push(module),
                other => mentions.visit_item(other),
            }
        }
        let children = modules.iter().map(|module| module.ident.to_string()).collect();
        let names = mentions.uses.iter().fold(BTreeMap::<_, Vec<_>>::new(), |mut names, (name, target)| {
            names.entry(name.clone()).or_default().push(target.clone());
            names
        });
        self.modules.insert(path.clone(), Module { children, names, mentions: mentions.paths });
        for module in modules {
            self.read_module(module, &folder, &path);
        }
    }

    fn read_module(&mut self, module: &ItemMod, folder: &Path, parent: &[String]) {
        let name = module.ident.to_string();
        let path = [parent, std::slice::from_ref(&name)].concat();
        let inside = folder.join(&name);
        match &module.content {
            Some((_, items)) => self.read_items(items, inside, path),
            None => {
                let [beside, within] = [folder.join(format!("{name}.rs")), inside.join("mod.rs")];
                let file = if beside.exists() { beside } else { within };
                self.read_file(&file, inside, path);
            }
        }
    }

    /// The module that an item written as `mentioned` in module `from` is of, if it is one of this crate's.
    fn resolve(&self, from: &[String], mentioned: &[String], depth: usize) -> Vec<ModulePath> {
        let Some(first) = mentioned.first() else { return Vec::new() };
        let (mut at, mut rest) = match first.as_str() {
            "crate" => (Vec::new(), &mentioned[1..]),
            "self" => (from.to_vec(), &mentioned[1..]),
            "super" => (from.to_vec(), mentioned),
            _ => {
                let here = &self.modules[from];
                if !here.children.contains(first) && !here.names.contains_key(first) {
                    return Vec::new();
                }
                (from.to_vec(), mentioned)
            }
        };
        while rest.first().is_some_and(|segment| segment == "super") {
            at.pop();
            rest = &rest[1..];
        }
        while let Some(segment) = rest.first() {
            let module = &self.modules[&at];
            if module.children.contains(segment) {
                at.push(segment.clone());
                rest = &rest[1..];
                continue;
            }
            // A name that the module passes on: what it stands for is elsewhere.
            let Some(targets) = module.names.get(segment).filter(|_| depth > 0) else { break };
            return targets
                .iter()
                .flat_map(|target| self.resolve(&at, &[target, &rest[1..]].concat(), depth - 1))
                .collect();
        }
        vec![at]
    }

    /// For every module, the edges between its children, each with a module that makes it.
    fn edges(&self) -> BTreeMap<ModulePath, BTreeMap<(String, String), String>> {
        let mut edges: BTreeMap<ModulePath, BTreeMap<_, _>> = BTreeMap::new();
        for (from, module) in &self.modules {
            let uses = module.names.values().flatten();
            for mentioned in module.mentions.iter().chain(uses) {
                // A `use` names what it brings in by a path of its own: never by the name that it brings.
                for to in self.resolve(from, mentioned, 8) {
                    let common = from.iter().zip(&to).take_while(|(left, right)| left == right).count();
                    if let (Some(left), Some(right)) = (from.get(common), to.get(common)) {
                        let of = edges.entry(from[..common].to_vec()).or_default();
                        of.entry((left.clone(), right.clone())).or_insert_with(|| from.join("/"));
                    }
                }
            }
        }
        edges
    }
}

/// Whether something is compiled for tests alone.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let test = attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"));
        test || attribute.path().is_ident("test")
    })
}

/// What code names.
#[derive(Default)]
struct Mentions {
    paths: Vec<Vec<String>>,
    /// Names that `use` brings in, with their paths.
    uses: Vec<(String, Vec<String>)>,
}

impl Mentions {
    fn add_use(&mut self, tree: &UseTree, before: &[String]) {
        match tree {
            UseTree::Path(path) => {
                self.add_use(&path.tree, &[before, &[path.ident.to_string()]].concat());
            }
            UseTree::Name(name) if name.ident == "self" => {
                if let Some(last) = before.last() {
                    self.uses.push((last.clone(), before.to_vec()));
                }
            }
            UseTree::Name(name) => {
                let name = name.ident.to_string();
                self.uses.push((name.clone(), [before, &[name]].concat()));
            }
            UseTree::Rename(rename) => {
                let target = [before, &[rename.ident.to_string()]].concat();
                self.uses.push((rename.rename.to_string(), target));
            }
            UseTree::Glob(_) => self.paths.push(before.to_vec()),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_use(tree, before)),
        }
    }

    /// Paths in tokens that nobody parses: the arguments of macros.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.paths.push(std::mem::take(&mut path));
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.paths.push(std::mem::take(&mut path));
                    colons = 0;
                    self.add_tokens(group.stream());
                }
                _ => {
                    self.paths.push(std::mem::take(&mut path));
                    colons = 0;
                }
            }
        }
        self.paths.push(path);
        self.paths.retain(|path| !path.is_empty());
    }
}

impl<'ast> Visit<'ast> for Mentions {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            Item::Const(item) => &item.attrs,
            Item::Struct(item) => &item.attrs,
            Item::Enum(item) => &item.attrs,
            Item::Static(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if !is_for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if item.leading_colon.is_none() {
            self.add_use(&item.tree, &[]);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            self.paths.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invocation: &'ast syn::Macro) {
        self.add_tokens(invocation.tokens.clone());
    }
}

/// Groups of nodes that reach each other, of two and more.
fn cycles(edges: &BTreeMap<(String, String), String>) -> Vec<BTreeSet<String>> {
    let nodes: BTreeSet<&String> = edges.keys().flat_map(|(left, right)| [left, right]).collect();
    let reached = |start: &String| {
        let (mut found, mut pending) = (BTreeSet::new(), vec![start]);
        while let Some(node) = pending.pop() {
            for (_, next) in edges.keys().filter(|(left, _)| left == node) {
                if found.insert(next.clone()) {
                    pending.push(next);
                }
            }
        }
        found
    };
    let reach: BTreeMap<&String, BTreeSet<String>> =
        nodes.iter().map(|node| (*node, reached(node))).collect();
    let component = |node: &String| -> BTreeSet<String> {
        reach[node].iter().filter(|other| reach[*other].contains(node)).cloned().collect()
    };
    let found: BTreeSet<BTreeSet<String>> = nodes.iter().map(|node| component(node)).collect();
    found.into_iter().filter(|component| component.len() > 1).collect()
}

/// The edges inside of a group, one a line.
fn told(edges: &BTreeMap<(String, String), String>, members: &BTreeSet<String>) -> String {
    let inside = edges.iter().filter(|((left, right), _)| members.contains(left) && members.contains(right));
    inside.map(|((left, right), by)| format!("  {left} -> {right} (in {by})\n")).collect()
}

#[test]
fn modules_refer_to_each_other_in_one_direction() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of all crates");
    let mut unlisted = String::new();
    let mut listed: Vec<&Cycle> = CYCLES.iter().collect();
    let mut read = 0;
    for entry in fs::read_dir(crates).expect("the crates") {
        let folder = entry.expect("a crate").path();
        let source = folder.join("src");
        if !source.join("lib.rs").exists() {
            continue;
        }
        let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let krate = Crate::read(&source);
        read += krate.modules.len();
        for (of, edges) in krate.edges() {
            for members in cycles(&edges) {
                let path = of.join("/");
                let is_it = |cycle: &&Cycle| {
                    cycle.krate == name
                        && cycle.of == path
                        && cycle.members.iter().map(|member| (*member).to_owned()).eq(members.iter().cloned())
                };
                match listed.iter().position(is_it) {
                    Some(place) => drop(listed.remove(place)),
                    None => {
                        let members: Vec<_> = members.iter().map(String::as_str).collect();
                        let of = if path.is_empty() { "its root" } else { &path };
                        unlisted += &format!("{name}, in {of}: {members:?}\n");
                        unlisted += &told(&edges, &members.into_iter().map(str::to_owned).collect());
                    }
                }
            }
        }
    }
    assert!(read > 200, "only {read} modules were read");
    assert!(unlisted.is_empty(), "modules that need each other:\n{unlisted}");
    let gone: Vec<_> =
        listed.iter().map(|cycle| (cycle.krate, cycle.of, cycle.members, cycle.reason)).collect();
    assert!(gone.is_empty(), "listed as cycles, but none any more (members are sorted by name): {gone:?}");
}

#[test]
fn names_that_are_passed_on_lead_to_where_they_are() {
    let file = |text: &str| syn::parse_file(text).unwrap().items;
    let mut krate = Crate { modules: BTreeMap::new() };
    krate.read_items(
        &file(
            "pub use low::Thing; mod low { pub struct Thing; fn f() { crate::high::g(); } }
             mod high { use crate::Thing; pub fn g() {} #[cfg(test)] fn t() { crate::other::x(); } }
             mod other { fn h() { println!(\"{}\", crate::high::g()); } }",
        ),
        PathBuf::new(),
        Vec::new(),
    );
    let edges = krate.edges().remove(&Vec::new()).unwrap();
    let found: Vec<(&str, &str)> = edges.keys().map(|(from, to)| (from.as_str(), to.as_str())).collect();
    assert_eq!(found, [("high", "low"), ("low", "high"), ("other", "high")]);
    assert_eq!(cycles(&edges), [["high", "low"].map(str::to_owned).into()]);
}
