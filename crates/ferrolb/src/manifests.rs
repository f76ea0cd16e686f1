// SPDX-License-Identifier: Apache-2.0
//! `ferrolb manifests`: what an installation consists of, with the namespace and the images of one's own.

use anyhow::Context as _;
use ferrolb_manifests::release::{IMAGE_PREFIX, VERSION};
use ferrolb_manifests::{Images, Installation};

use crate::Output;

pub(crate) const EXAMPLES: &str = "\
Examples:
  ferrolb manifests | kubectl apply -f -
  ferrolb manifests --image-prefix registry.example/ferrolb    images that every node can pull
  ferrolb manifests -o json | jq '.items[] | select(.kind == \"ClusterRole\")'

Applying it again leaves what the cluster filled in: certificates, statuses, what other tools added.";

/// What `ferrolb manifests` takes.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Namespace of everything that has one.
    #[arg(long, default_value = ferrolb_api::DEFAULT_NAMESPACE)]
    namespace: String,
    /// Where the images are: PREFIX/controller and PREFIX/speaker. The default is for images that were loaded into the
    /// nodes by hand: no registry is asked for them.
    #[arg(long, value_name = "PREFIX", default_value = IMAGE_PREFIX)]
    image_prefix: String,
    /// Their tag.
    #[arg(long, default_value = VERSION)]
    tag: String,
    /// Form of the output. JSON has no comments.
    #[arg(short, long, value_enum, default_value_t = Output::Yaml)]
    output: Output,
}

/// The text to print.
pub(crate) fn text(args: &Args) -> anyhow::Result<String> {
    let images = Images::new(&args.image_prefix, &args.tag)?;
    let installation = Installation::new(&args.namespace, images)?;
    Ok(match args.output {
        Output::Yaml => installation.yaml().context("cannot write the manifests")?,
        Output::Json => {
            let items = installation.documents().context("cannot write the manifests")?;
            let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items});
            serde_json::to_string_pretty(&list)? + "\n"
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn printed(arguments: &[&str]) -> anyhow::Result<String> {
        text(&Cli::parse_from(["manifests"].iter().chain(arguments)).args)
    }

    #[test]
    fn without_flags_it_is_the_installation_that_deploy_holds() {
        assert_eq!(printed(&[]).unwrap(), include_str!("../../../deploy/ferrolb.yaml"));
    }

    #[test]
    fn both_forms_hold_the_same_objects() {
        let json: serde_json::Value = serde_json::from_str(&printed(&["-o", "json"]).unwrap()).unwrap();
        let yaml: Vec<serde_json::Value> = serde_saphyr::from_multiple(&printed(&[]).unwrap()).unwrap();
        assert_eq!(json["items"].as_array().unwrap(), &yaml);
    }

    #[test]
    fn flags_choose_namespace_and_images_and_a_bad_one_is_named() {
        let text =
            printed(&["--namespace", "lb", "--image-prefix", "registry.example/x", "--tag", "7"]).unwrap();
        for part in ["image: registry.example/x/speaker:7\n", "  namespace: lb\n", "name: lb:controller\n"] {
            assert!(text.contains(part), "no {part:?}");
        }
        let error = printed(&["--tag", "a:b"]).unwrap_err().to_string();
        assert!(error.contains("\"a:b\" is no tag"), "{error}");
    }
}
