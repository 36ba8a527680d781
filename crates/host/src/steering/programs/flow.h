/* What the programs and leat tell each other: the layout of keys, values and counters. The same in ../layout.rs, where a test compares sizes. */
#pragma once
#include <linux/types.h>

/* A connection as the client sees it. IPv4 addresses are mapped into IPv6; all in network order. */
struct flow_key {
	__u8 client[16];
	__u8 vip[16];
	__be16 client_port;
	__be16 vip_port;
};

/* What leat says of a flow. */
enum flow_flags {
	FLOW_HELD = 1,        /* in the middle of a handoff: packets wait */
	FLOW_NODE_CLOSED = 2, /* the node has said that it's done */
	FLOW_BORN = 4,        /* its SYN was answered by a cookie, and no host has a socket of it yet */
	FLOW_HERE = 8,        /* with FLOW_BORN: this host's listener is to have it */
	FLOW_FOREIGN = 16,    /* at a server that says nothing of it: it's over when its client is silent */
	FLOW_OFFERED = 32,    /* with FLOW_HELD: on its way to its holder: acknowledgements of more than was `said` don't wait */
	FLOW_CUT = 64,        /* nobody has it any more: this host's kernel resets whoever still says something */
	FLOW_WATCHED = 128,   /* with FLOW_FOREIGN: leat is asked where its next requests belong */
};

/* Whose turn it is, with FLOW_WATCHED. */
enum flow_turn {
	TURN_CLIENT,  /* what its client says next is looked at */
	TURN_LEAT,    /* a request waits, and all that follows: leat is to say where it belongs */
	TURN_PLANTED, /* leat has had the connection made at its holder: until its client has heard that one, what it says waits as well */
	TURN_NOBODY,  /* it stays at its holder */
	TURN_PLANTING, /* TURN_PLANTED, before its holder has got anything of it */
};

/* Where a flow's packets go, as leat says, and what its client said last, as its packets say. Each field has one writer, and is written where it is: an
 * entry that was put in the place of another would undo what the other has written meanwhile. So leat changes entries by a program (`change`). */
struct flow {
	/* What every packet needs comes first: in the kernel's element it shares a cache line with the end of the key. */
	__u64 seen_ns;      /* of the last packet or change; CLOCK_MONOTONIC, to a tick */
	__u32 holder;       /* leat's: the worker that has it, at the node where the packets go */
	__u32 client_next;  /* sequence number that the client would use next */
	__u32 acknowledged;
	__u32 timestamp;    /* of the client's clock; 0 without the option */
	__u16 window;       /* as it stands in the segment, unscaled */
	__u8 flags;         /* leat's */
	__u8 client_fin;    /* the client sends no more */
	__u8 reset;         /* the client has given it up */
	__u8 repeats;       /* segments in which the client said nothing new: a count that wraps */
	__u16 wraps;        /* of what was acknowledged since `base`, which sequence numbers are too short to tell */
	__u64 serial;       /* which flow of this key: a late deletion spares the next one */
	__u32 home;         /* leat's: the worker that decides who has it */
	__u32 generation;   /* leat's: under which the holder has it */
	__u32 said;         /* leat's: with FLOW_OFFERED: the sequence number behind all that whoever had it before can have sent */
	__u32 base;         /* what was acknowledged when the holder got it; 0 if that isn't known */
	__u32 looked_to;    /* with FLOW_WATCHED: what its client has said before this sequence number is for its holder */
	__u8 turn;          /* the programs' and leat's: `flow_turn` */
	__u8 options;       /* its client's, as a cookie has them in 7 bits */
	__u8 scale;         /* of the windows that its client is told */
	__u8 unused;
};

/* As much of what a client said last as is kept, and of how many connections; and as much of what came behind that, and of how many it's kept. */
#define KEPT_BYTES_MAX 1024
#define KEPT_REQUESTS_MAX (1 << 14)
#define KEPT_REST_BYTES_MAX 4096
#define KEPT_RESTS_MAX (1 << 12)

/* What a client has said last, in packets that followed each other and acknowledged the same. */
struct kept_request {
	__u32 sequence;     /* of its first byte */
	__u32 acknowledged;
	__u32 bytes;        /* that are kept */
	__u32 more;         /* that followed on them: kept as the rest, if they are */
	__u8 payload[KEPT_BYTES_MAX]; /* what is behind so many bytes is an earlier one's */
};

/* What followed on that: the first of it. */
struct kept_rest {
	__u32 sequence;     /* of its first byte: where what is kept before it ends, or else it's an earlier one's */
	__u32 bytes;
	__u8 payload[KEPT_REST_BYTES_MAX];
};

/* What leat wants of an entry: the packet that `change_flow` is run with. */
struct change {
	__u8 ethernet[14];    /* every packet has so much in front */
	__u8 what;            /* change_kind */
	__u8 cleared;         /* flags */
	struct flow_key key;
	__u32 home;           /* with the serial in `to`: the flow that is meant */
	struct flow to;       /* its flags are set besides; the whole is the entry where one is made */
};

enum change_kind {
	CHANGE_MAKES = 1,     /* an entry, if there is none */
	CHANGE_REPLACES = 2,  /* or if it's another flow's */
	CHANGE_HOLDER = 4,    /* home, holder, generation, and what was said are new */
	CHANGE_HEARD = 8,     /* so is what the client said: it goes on from there */
	CHANGE_DELETES = 16,
	CHANGE_BEGINS = 32,   /* nobody has it yet: only one can say who does */
	CHANGE_LOOKED = 64,   /* its client's next requests have been looked at, or where it's to begin with that is new */
};

enum change_result {
	CHANGE_DONE,
	CHANGE_GONE,   /* there is no entry, or it's another flow's */
	CHANGE_FULL,
	CHANGE_FAILED, /* no memory */
};

/* How leat numbers the workers of servers: the server's number in front of the worker's. */
#define WORKER_BITS 10
#define SERVER_OF(worker) ((worker) >> WORKER_BITS)
#define NUMBER_OF(worker) ((worker) & ((1 << WORKER_BITS) - 1))

/* What a packet that begins a connection at a node names in its urgent pointer, which has no other meaning there: whose flow it is, and who is to have it.
 * So they have numbers below this; flows of others are moved. */
#define NAMED_WORKERS 256

/* The same where the flow has moved since it began: a packet that finds no connection doesn't make one, beside that which is being moved there. */
#define NAMES_NOBODY 0xffff
#define GENERATION_BORN 1

/* The most turns by which a standing choice divides connections. */
#define CHOICE_TURNS 16

/* Where connections begin whose first request is for the same, until leat has looked again. */
struct choice {
	__u64 until_ns; /* CLOCK_MONOTONIC */
	__u64 content;  /* its key once more: the kernel uses an element that has been replaced for another, whoever looks at it */
	__u32 home;     /* the worker that decides who has them */
	__u32 limit;    /* so many may begin */
	__u32 used;     /* so many have been about to */
	__u32 flags;    /* of their entries */
	__u32 first;    /* whose turn it is then */
	__u32 turns;    /* how many there are */
	__u32 holders[CHOICE_TURNS];
};

/* A connection that has begun by a standing choice, as leat is told of it. Its first packet's payload follows. */
struct begun {
	struct flow_key key;
	__u32 home;
	__u32 holder;
	__u32 sequence;     /* of that packet */
	__u32 acknowledged;
	__u32 timestamp;    /* what it says of its client's clock */
	__u32 echo;         /* and of ours */
	__u32 window;
	__u64 serial;
	__u64 content;      /* which choice it was */
	__u16 repeats;
	__u16 flags;        /* of its entry */
	__u32 bytes;        /* of the payload */
};

enum node_reach {
	NODE_UNREACHABLE = 0,
	NODE_NEIGHBOUR = 1, /* on the same network: it gets the packets as they are */
	NODE_ROUTED = 2,    /* behind routers: packets get its address */
	NODE_PEER = 3,      /* on the same network, and sends packets on as this host does */
};

/* Their numbers are below this: each has its place, which is unreachable as long as nobody says how it's reached. */
#define NODES_MAX 128

struct node {
	__u8 address6[16]; /* zeros: it has none */
	__be32 address4;
	__u32 ifindex;
	__u32 reach;
};

/* An address and port of a server: the VIP, or a node's own that stands for one on the way there. */
struct service_key {
	__u8 address[16];
	__be16 port;
};

enum service_flags {
	SERVICE_OWN = 1,    /* the node's own address: `vip` is what it stands for */
	SERVICE_MARKED = 2, /* leaves with FIN or RST only under CLOSING_MARK */
	SERVICE_FOREIGN = 4, /* the server at `listener` isn't leat: its connections stay there, whatever becomes of leat */
};

struct service {
	__u8 vip[16];
	__u32 flags;
	__u8 listener[16];
	__be16 listener_port;
	__u8 unused[2];
};

/* A connection that began at a node: which, and whether its process has it. */
struct birth {
	__u64 serial;
	__u32 echo;        /* when its SYN was answered, by the clock of who did */
	__u16 names;       /* of workers: its home's in front of its own */
	__u16 is_accepted; /* or, at a foreign server, over */
	__u32 client_next; /* at a foreign server: what follows on its client's FIN */
	__u32 sequence;    /* of what its client had said when it was made here */
};

/* What leat says of a connection at a node: the packet that `mark` is run with. What packets say of it meanwhile stays. */
struct mark {
	__u8 ethernet[14]; /* every packet has so much in front */
	__u8 what;         /* mark_kind */
	__u8 unused[1];
	struct flow_key key;
	__u32 unused2;
	__u64 serial;      /* of the birth that is meant */
};

enum mark_kind {
	MARK_GIVEN,    /* another server has it */
	MARK_KEPT,     /* none has */
	MARK_ACCEPTED, /* it has a process */
};

/* So many connections at most have had their handshakes replayed at a node. */
#define REPLAYS_MAX (1 << 18)

enum replay_ends {
	REPLAY_CLIENT_ENDS = 1,
	REPLAY_SERVER_ENDS = 2,
	REPLAY_SETTLED = 4, /* all that follows is repeated: both have ended, and the client has heard it, or one has reset the other */
};

/* A connection at a server whose kernel has had its handshake with the node's program: by how much it differs from what its client takes part in. */
struct replay {
	__u64 seen_ns;      /* of its client's last packet; CLOCK_MONOTONIC, to a tick */
	__u32 sequence;     /* the server's numbers less those that its client has been told; before the answer, the number that its client began with */
	__u32 clock;        /* the same of timestamps */
	__u8 is_answered;   /* the kernel has answered the SYN */
	__u8 ends;          /* who has said goodbye: `replay_ends` */
	__u8 server_scale;  /* of the windows that the server tells */
	__u8 told_scale;    /* and of those that its client is told */
	__u32 server_end;   /* what its client acknowledges when it has heard the server's goodbye */
};

/* An option for experiments (RFC 6994): kind, length, and a number that says whose. */
#define PLANTING_KIND 253
#define PLANTING_NUMBER 0x6c74
/* Its place, behind the header and in front of the other options. */
#define PLANTING_AT 20
#define PLANTING_WORD ((__u32)PLANTING_KIND << 24 | (__u32)sizeof(struct planting) << 16 | PLANTING_NUMBER)

/* Of `terms`. */
#define PLANTING_SACK 1
#define PLANTING_TIMESTAMPS 2
#define PLANTING_GOES_ON 4 /* what doesn't fit into the packet that makes the connection */
#define PLANTING_HERE 8    /* at the dispatcher's own listener, and not at a node's server */

struct planting {
	__be32 word;
	__be32 made;   /* when, in ms, by the clock of who makes cookies */
	__be16 mss;
	__u8 scales;   /* the client's in the upper four bits, NO_WINDOW_SCALE without the option, and that of the windows that it's told */
	__u8 terms;
	__u64 hash;
} __attribute__((packed));

/* As much of a reply as nearly all heads have at most. */
#define REPLY_BYTES_MAX 1024
#define TAIL_BYTES 8

/* What was said last on a connection of a foreign server that is watched. leat sets `is_given`, and nothing else. */
struct reply {
	__u32 next;        /* the sequence number behind what its client has said */
	__u32 begin;       /* of the reply's first byte */
	__u32 end;         /* behind what the server has said */
	__u32 shown;       /* what its packets said last of its clock; 0 without the option */
	__u8 request[4];   /* the first bytes of the request; 0 where they haven't come yet */
	__u8 is_awaited;   /* of the reply nothing has been said */
	__u8 is_muddled;   /* which request the reply is of isn't known */
	__u8 is_given;     /* another server has the connection: nothing of it leaves any more */
	__u8 is_whole;     /* the request: it ends as heads do */
	__u8 tail[TAIL_BYTES]; /* the last bytes of the reply */
	__u16 tail_bytes;
	__u16 bytes;       /* of `head` */
	__u8 head[REPLY_BYTES_MAX];
};

/* Who has the connections of a VIP that this host knows nothing of. */
struct heir {
	__u32 node;
	__u32 begins; /* those too that begin: this host's server is going, or has gone */
};

/* What there is at all, in a map of numbers: where there is nothing, nobody looks for it. Most packets are of no flow, and each that looks for one in vain
 * waits for memory. */
enum total {
	FLOWS_MADE, /* entries that have been made so far */
	FLOWS_OVER, /* so many had been made when none was left */
	HEIRS,
	TOTALS
};

/* Whose a bucket of connections is, by nodes' numbers; 0 is nobody. */
struct owners {
	__u16 current;  /* gets what begins */
	__u16 previous; /* gets what the former has no connection of */
};

/* Of an address at which fronts or their nodes look at packets. */
enum spread_flags {
	SPREAD_OWN = 1,     /* this node's own, at which fronts see whether it's well */
	SPREAD_REFUSES = 2, /* and it isn't: what begins there is refused */
};

struct spread_service {
	__u8 server[16]; /* that isn't leat, and has the connections that begin here */
	__be16 server_port;
	__u16 flags;
};

/* Both halves of what buckets are made with, and whether there is any connection that has left its bucket: looking for one costs as much as all the rest. */
struct bucket_key {
	__u64 first;
	__u64 second;
	__u64 has_moved;
};

/* Where a connection lives that has left its bucket's owner. */
struct moved {
	__u16 number;  /* the node's */
	__u16 is_over; /* its node has closed it: what begins under the same ports begins at the owner */
};

/* In the lease's place where all servers are foreign: nobody needs one. */
#define NO_LEASE (~0ULL)

/* SO_MARK of a socket that its process closes on purpose: "leat". */
#define CLOSING_MARK 0x6c656174

enum dispatcher_counter {
	STEERED,       /* sent to a node */
	HELD,          /* sent to the tap */
	LOST,          /* the entry's node can't be reached, or doesn't have the connection yet: dropped */
	REPLACED,      /* entries deleted by a client's new connection */
	ERRORS,        /* ICMP messages sent after the flow they quote */
	RESETS,        /* resets that this host didn't get to send */
	ANSWERED,      /* SYNs answered by a cookie */
	AWAITED,       /* handshakes that have ended: the request is to come */
	STALE,         /* cookies that are too old */
	ADMITTED,      /* connections given to this host's own listener */
	ASKED,         /* next requests that leat is to look at */
	CROWDED,       /* connections whose handshake would have been replayed, had there been room for another: refused */
	DISPATCHER_COUNTERS
};

enum node_counter {
	RECEIVED,      /* passed on to a connection */
	STRAY,         /* for the VIP, but without a connection: dropped */
	RESTORED,      /* got the VIP back for the node's own address */
	NODE_RESETS,   /* resets without a connection: dropped */
	GOODBYES,      /* FIN or RST of a process that died: dropped */
	FENCED,        /* past the lease: dropped */
	BORN,          /* connections that began here */
	REPEATED,      /* packets that would have made a connection a second time: dropped */
	FORGED,        /* for the VIP, without a connection, and with a cookie that isn't right: dropped */
	UNHEARD,       /* connections that would have begun at a foreign server that doesn't listen */
	GIVEN,         /* packets of a connection that another server has been given: dropped */
	PLANTED,       /* connections that began here, and had begun elsewhere */
	REPLAYED,      /* handshakes that the kernel has had with the program, in a client's place */
	NODE_CROWDED,  /* the same that would have been, had there been room for another: refused */
	NODE_COUNTERS
};

enum spread_counter {
	SPREAD,        /* sent to the owner of its bucket */
	PASSED_ON,     /* without a connection here: sent to the previous owner */
	UNREACHED,     /* that node isn't known: dropped */
	FOLLOWED,      /* sent to the node that has taken the connection over */
	SERVED,        /* given to the listener of a server that isn't leat */
	UNSERVED,      /* would have been, but it doesn't listen */
	SPREAD_COUNTERS
};
