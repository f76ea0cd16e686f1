// SPDX-License-Identifier: Apache-2.0
//! Things that are counted, in groups with a heading: rules that were put to the test, things that happened.
//!
//! A simulation that never meets a situation says nothing about it, so a zero is a failure of its own.

/// Makes `Mark`, one per thing; `Group`, the kinds of them; and `MARKS`, the texts in order.
macro_rules! marks {
    ($($group:ident, $title:literal { $($mark:ident = $text:literal,)* })*) => {
        /// Something that is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Mark {
            $($($mark,)*)*
        }

        const MARKS: &[(Group, &str)] = &[$($((Group::$group, $text),)*)*];

        /// A kind of things that are counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Group {
            $(#[doc = $title] $group,)*
        }

        impl Group {
            /// All of them, in order.
            pub const ALL: &[Self] = &[$(Self::$group,)*];

            /// A heading.
            pub const fn title(self) -> &'static str {
                match self {
                    $(Self::$group => $title,)*
                }
            }
        }
    };
}

pub(crate) use marks;
