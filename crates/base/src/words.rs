//! Enums whose variants are words: the possible values of a parameter, an option, or an entry of a file.

pub use serde;

/// One of the words that a parameter accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    pub name: &'static str,
    /// Its meaning, if the name does not say it.
    pub help: Option<String>,
}

/// An enum whose variants are words; [`words!`](crate::words!) declares one.
pub trait Words: Copy + PartialEq + Send + Sync + 'static {
    /// The variants that can be chosen, in the order of help texts.
    const ALL: &'static [Self];

    /// The word.
    fn name(self) -> &'static str;

    /// The doc comment of the variant.
    fn doc(self) -> &'static str;

    /// Other names of the same variant.
    fn aliases(self) -> &'static [&'static str] {
        &[]
    }

    /// The variant with this name or alias.
    fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|one| one.name() == text || one.aliases().contains(&text))
    }

    /// Name and meaning.
    fn word(self) -> Word {
        Word { name: self.name(), help: Some(paragraph(self.doc())).filter(|help| !help.is_empty()) }
    }

    /// All words.
    fn list() -> Vec<Word> {
        Self::ALL.iter().map(|one| one.word()).collect()
    }
}

/// A doc comment as one paragraph, without the full stop at its end.
pub fn paragraph(doc: &str) -> String {
    let lines: Vec<&str> = doc.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let text = lines.join(" ");
    // An ellipsis stays.
    text.strip_suffix('.').filter(|rest| !rest.ends_with('.')).map(ToString::to_string).unwrap_or(text)
}

/// Declares an enum of [`Words`]: each variant with its word, and aliases after a `|`. The doc comments are the help
/// texts. Variants after a `;` have a name, but cannot be chosen. The enum is serialised as its word.
#[macro_export]
macro_rules! words {
    (
        $(#[$meta:meta])*
        $vis:vis enum $Name:ident {
            $( $(#[doc = $help:literal])* $Variant:ident = $word:literal $(| $alias:literal)* ),* $(,)?
            $(; $( $(#[doc = $hidden_help:literal])* $Hidden:ident = $hidden:literal ),* $(,)? )?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis enum $Name {
            $( $(#[doc = $help])* $Variant, )*
            $($( $(#[doc = $hidden_help])* $Hidden, )*)?
        }

        impl $Name {
            /// The word.
            #[allow(dead_code)]
            $vis fn name(self) -> &'static str {
                $crate::words::Words::name(self)
            }
        }

        impl $crate::words::Words for $Name {
            const ALL: &'static [Self] = &[$( $Name::$Variant ),*];

            fn name(self) -> &'static str {
                match self {
                    $( $Name::$Variant => $word, )*
                    $($( $Name::$Hidden => $hidden, )*)?
                }
            }

            fn doc(self) -> &'static str {
                match self {
                    $( $Name::$Variant => concat!($($help, "\n"),*), )*
                    $($( $Name::$Hidden => concat!($($hidden_help, "\n"),*), )*)?
                }
            }

            fn aliases(self) -> &'static [&'static str] {
                match self {
                    $( $Name::$Variant => &[$($alias),*], )*
                    $($( $Name::$Hidden => &[], )*)?
                }
            }
        }

        impl std::fmt::Display for $Name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad($crate::words::Words::name(*self))
            }
        }

        impl $crate::words::serde::Serialize for $Name {
            fn serialize<S>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error>
            where
                S: $crate::words::serde::Serializer,
            {
                serializer.serialize_str($crate::words::Words::name(*self))
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    words! {
        /// Kinds.
        enum Kind {
            /// The first,
            /// in two lines.
            First = "first" | "one",
            Second = "second-one";
            /// Not offered
            Third = "third"
        }
    }

    #[test]
    fn a_variant_has_a_word_and_its_doc_comment_as_help() {
        let words = Kind::list();
        assert_eq!(words[0], Word { name: "first", help: Some("The first, in two lines".into()) });
        assert_eq!(words[1], Word { name: "second-one", help: None });
        assert_eq!((Kind::parse("one"), Kind::parse("First"), Kind::parse("third")), (Some(Kind::First), None, None));
        assert_eq!((Kind::Third.to_string(), Kind::Third.doc().trim()), ("third".into(), "Not offered"));
        assert_eq!(serde_json::to_value(Kind::Second).unwrap(), "second-one");
    }
}
