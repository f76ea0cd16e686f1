// SPDX-License-Identifier: Apache-2.0
//! Where many Services are created: their namespace, a pool wide enough for all of them, and what announces it.

/// The namespace of the Services.
pub(super) const NAMESPACE: &str = "crowd";

/// Namespace, pool, and an advertisement of this kind.
pub(super) fn manifest(advertisement: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Namespace
metadata: {{name: {NAMESPACE}}}
---
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {{name: wide, namespace: metallb-system}}
spec: {{addresses: [10.200.0.0/16]}}
---
apiVersion: metallb.io/v1beta1
kind: {advertisement}
metadata: {{name: wide, namespace: metallb-system}}
spec: {{ipAddressPools: [wide]}}
"
    )
}
