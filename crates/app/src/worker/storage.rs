//! What the storage says: answers to what was asked for requests, and files that have changed. Who pays for what it has the disk read.

use leat_host::reactor::{Completion, Token};
use leat_host::storage::{Payer, Storage, StorageEvent, Ticket};

use super::exchange::Answer;
use super::{ARRIVALS_INDEX, File, Host, STORAGE_WAKE, STORAGE_WATCH, Stage, Worker};

/// Open files that the cache gives back when descriptors are short.
pub(super) const DESCRIPTORS_GIVEN_BACK: usize = 16;

/// What this thread has the disk read for a site from some moment on.
pub(super) struct DiskAccount {
    site: u32,
    /// Nobody, where the site has no limit: then nothing is measured.
    pub(super) payer: Option<Payer>,
    before_bytes: u64,
}

impl<H: Host> Worker<H> {
    /// To be opened before the storage is asked for a site, or a file is sent: even what doesn't wait for the disk may have it begin to read.
    pub(super) fn open_account(&self, site: u32) -> DiskAccount {
        let payer = self.gates[site as usize].has_disk_limit().then_some(Payer(site));
        DiskAccount { site, payer, before_bytes: payer.map_or(0, |_| self.host.disk_bytes()) }
    }

    pub(super) fn close_account(&mut self, account: DiskAccount) {
        if account.payer.is_some() {
            self.charge_disk(account.site, self.host.disk_bytes().saturating_sub(account.before_bytes));
        }
    }

    /// A change to a file comes before the requests that came with it: whoever wrote the file and then asks for it gets the new one.
    pub(super) fn take_changes(&mut self, completions: &[Completion]) {
        let storage = |completion: &Completion| matches!(completion, Completion::Readable { token } if *token == STORAGE_WAKE || *token == STORAGE_WATCH);
        if completions.iter().any(storage) {
            self.poll_storage();
        }
    }

    pub(super) fn poll_storage(&mut self) {
        let mut events = std::mem::take(&mut self.storage_events);
        self.storage.poll(&mut events);
        for event in events.drain(..) {
            self.handle_storage_event(event);
        }
        self.storage_events = events;
    }

    fn handle_storage_event(&mut self, event: StorageEvent<File<H>>) {
        match event {
            StorageEvent::Changed(change) => self.cache.apply(&change),
            StorageEvent::FromDisk { payer: Payer(site), bytes } => self.charge_disk(site, bytes),
            StorageEvent::DescriptorsShort => {
                self.cache.release_files(DESCRIPTORS_GIVEN_BACK);
            }
            StorageEvent::Loaded { ticket, loaded } => {
                self.remember(token_of(ticket), loaded.as_ref());
                self.answered(ticket, Answer::Loaded(loaded), Stage::Serve);
            }
            StorageEvent::Resident { ticket, result } => {
                self.answered(ticket, Answer::Resident(result), Stage::Transmit);
            }
            StorageEvent::Read { ticket, result } => self.answered(ticket, Answer::Read(result), Stage::Transmit),
        }
    }

    fn answered(&mut self, ticket: Ticket, answer: Answer<File<H>>, stage: Stage) {
        let token = token_of(ticket);
        if token.index == ARRIVALS_INDEX {
            return self.arrival_answered(token.generation, answer);
        }
        let exchange = self.connections.get(token).and_then(|connection| connection.exchange.as_mut());
        // The client may have gone meanwhile.
        if let Some(exchange) = exchange {
            exchange.answer = Some(answer);
            self.queue(stage, token);
        }
    }
}

/// The storage's answer finds its connection by the ticket: the token in one number.
pub(super) fn ticket_of(token: Token) -> Ticket {
    Ticket(u64::from(token.generation) << 32 | u64::from(token.index))
}

fn token_of(ticket: Ticket) -> Token {
    Token { index: ticket.0 as u32, generation: (ticket.0 >> 32) as u16 }
}
