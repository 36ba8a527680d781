//! Entries of flows that are over, and how long they stay.

use super::*;

#[test]
fn what_its_client_has_given_up_while_it_was_held_is_not_kept() {
    in_lab("given-up", |dispatcher| {
        let (flows, reset) = (dispatcher.flows(), Segment::new(CLIENT4, VIP4, RST, 1000));
        let left_after = |seconds| {
            let later = crate::clock::now().after(Duration::from_secs(seconds));
            flows.sweep(None, 256, later).unwrap().0
        };
        let give_up = || {
            steer(dispatcher, reset.key(), 1);
            arrive(dispatcher, &reset);
            flows.hold_again(reset.key(), id(1)).unwrap();
        };
        give_up();
        assert_eq!(left_after(60), 1, "its home has yet to say that it's over");
        flows.close(reset.key(), id(1)).unwrap();
        assert!(!flows.get(reset.key()).unwrap().unwrap().held);
        assert_eq!(left_after(3), 0);
        // Its home has died, and the next one doesn't take it up.
        give_up();
        assert_eq!(left_after(121), 0);
        // Only its node has closed it: the client may have something to say.
        steer(dispatcher, reset.key(), 1);
        flows.hold_again(reset.key(), id(1)).unwrap();
        assert_eq!(left_after(3600), 1, "held, and wanted");
        flows.close(reset.key(), id(1)).unwrap();
        assert_eq!(arrive(dispatcher, &Segment::new(CLIENT4, VIP4, ACK, 1000)), REDIRECT, "it doesn't wait");
        assert_eq!((left_after(3), left_after(121)), (1, 0));
    });
}
