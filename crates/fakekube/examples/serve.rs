// SPDX-License-Identifier: Apache-2.0
//! Serves an empty cluster until it is stopped: `serve ADDRESS:PORT DIRECTORY [SERVICE-RANGE…]`. The
//! directory receives a kubeconfig.

use ferrolb_fakekube::{Options, run};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(bind), Some(dir)) = (arguments.next(), arguments.next()) else {
        return Err("usage: serve ADDRESS:PORT DIRECTORY [SERVICE-RANGE…]".into());
    };
    let ranges: Vec<String> = arguments.collect();
    let mut options = Options { bind: bind.parse()?, dir: Some(dir.into()), ..Options::default() };
    if !ranges.is_empty() {
        options.service_cidrs = ranges;
    }
    run(options).await?;
    Ok(())
}
