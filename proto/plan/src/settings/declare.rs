//! The macros that declare the settings of a node's proxy.

/// Declares [`Settings`](super::Settings), their defaults and [`SettingsPatch`](super::SettingsPatch). Each setting has
/// a scope: `node` if nodes may differ, `cluster` if all nodes share it, so no patch contains it.
macro_rules! declare {
    ($($(#[$attribute:meta])* [$scope:ident] $field:ident: $type:ty = $default:expr,)*) => {
        /// All user settings of a node's proxy.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub struct Settings {
            $($(#[$attribute])* pub $field: $type,)*
        }

        impl Default for Settings {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        declare! { @patch [] $($(#[$attribute])* [$scope] $field: $type,)* }
    };
    (@patch [$($node:tt)*] $(#[$attribute:meta])* [node] $field:ident: $type:ty, $($rest:tt)*) => {
        declare! { @patch [$($node)* $(#[$attribute])* $field: $type,] $($rest)* }
    };
    (@patch [$($node:tt)*] $(#[$attribute:meta])* [cluster] $field:ident: $type:ty, $($rest:tt)*) => {
        declare! { @patch [$($node)*] $($rest)* }
    };
    (@patch [$($(#[$attribute:meta])* $field:ident: $type:ty,)*]) => {
        /// Settings of some nodes that replace those of all nodes, each as a whole. Only settings that may differ
        /// between nodes are included.
        #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub struct SettingsPatch {
            $($(#[$attribute])* pub $field: Option<$type>,)*
        }

        impl SettingsPatch {
            /// Replaces the settings that the patch contains.
            pub fn apply(&self, settings: &mut Settings) {
                $(if let Some(value) = &self.$field {
                    settings.$field.clone_from(value);
                })*
            }
        }
    };
}

/// Declares a group of settings with their defaults.
macro_rules! group {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident {
            $($(#[$of_field:meta])* $field:ident: $type:ty = $default:expr,)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub struct $name {
            $($(#[$of_field])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }
    };
}
