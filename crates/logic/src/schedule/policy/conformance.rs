//! What every policy must do, whatever its order.

use super::PolicyKind;

#[test]
fn names_lead_back_to_their_policies() {
    for &kind in PolicyKind::ALL {
        assert_eq!(PolicyKind::from_name(kind.name()), Some(kind));
        assert!(kind.name().bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{kind}");
        assert!(!kind.about().is_empty(), "{kind}");
    }
    assert_eq!(PolicyKind::from_name("fifo"), None);
}
