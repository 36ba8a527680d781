/* At the server where clients' packets arrive: sends each packet of a flow to the node that holds it, or keeps it while the flow changes hands.
 * Which node that is, leat decides: it has entries changed. By themselves they are only deleted, when a client uses its port anew. */
#include <stddef.h>
#include <linux/errno.h>

#ifdef WITH_BIRTHS
#include "answer.h"
#include "choice.h"
#include "planted.h"
#include "watch.h"
#else
#include "untranslated.h"
#endif
#include "kept.h"
#include "reach.h"
#include "socket.h"
#include "syncookie.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 20);
	__type(key, struct flow_key);
	__type(value, struct flow);
} flows SEC(".maps");

/* The tap that holds an interface's packets, and the interface of a tap. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} taps SEC(".maps");

/* VIPs whose server has been stopped since this host started, and who has had their connections since then. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct service_key);
	__type(value, struct heir);
} heirs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TOTALS);
	__type(key, __u32);
	__type(value, __u64);
} totals SEC(".maps");

COUNTERS(dispatcher_counters, DISPATCHER_COUNTERS)

static __always_inline __u64 total(__u32 which)
{
	__u64 *value = bpf_map_lookup_elem(&totals, &which);
	return value ? *value : 0;
}

static __always_inline int has_flows(void)
{
	return total(FLOWS_MADE) != total(FLOWS_OVER);
}

/* Puts an entry there. It counts only then: who counts before looking for entries, and finds none, has seen all that were counted. The result is an int: before
 * Linux 6.4 a map's functions return one where the helper is said to return a long, whose upper half is nothing then. */
static __always_inline int make(const struct flow_key *key, const struct flow *flow, __u64 flags)
{
	__u32 which = FLOWS_MADE;
	__u64 *made = bpf_map_lookup_elem(&totals, &which);
	int result = bpf_map_update_elem(&flows, key, flow, flags);
	if (result == 0 && made)
		__sync_fetch_and_add(made, 1);
	return result;
}

static __always_inline int drop(__u32 why)
{
	count(why);
	return TC_ACT_SHOT;
}

/* Whether a segment is its client's: nobody who guesses may end a flow or move its numbers. It goes on where that was, or, as after a loss, not far from there; then
 * what it acknowledges isn't far from what has been either, as kernels want it as well (RFC 5961, section 5). A FIN behind what was lost may never be said again. */
static __always_inline int is_plausible(const struct packet *packet, const struct flow *flow, __s32 ahead)
{
	return ahead == 0 || (packet->tcp.ack && is_near(ahead) && is_near(bpf_ntohl(packet->tcp.ack_seq) - flow->acknowledged));
}

static __always_inline void remember(struct __sk_buff *skb, const struct packet *packet, struct flow *flow)
{
	__u32 sequence = bpf_ntohl(packet->tcp.seq), acknowledged = bpf_ntohl(packet->tcp.ack_seq);
	__s32 ahead = sequence - flow->client_next;
	flow->seen_ns = bpf_ktime_get_coarse_ns();
	if (!is_plausible(packet, flow, ahead))
		return;
	if (packet->tcp.rst) {
		/* Only exactly the expected one ends a connection (RFC 5961, section 3); the node's kernel challenges the others. */
		if (ahead == 0)
			flow->reset = 1;
		return;
	}
	__u32 end = sequence + packet->payload + packet->tcp.fin;
	if ((__s32)(end - flow->client_next) > 0)
		flow->client_next = end;
	else if (packet->payload || packet->tcp.fin)
		/* Probes of a window and of whether somebody is there have nothing in them. */
		flow->repeats++;
	if (packet->tcp.fin)
		flow->client_fin = 1;
	if (packet->tcp.ack && (__s32)(acknowledged - flow->acknowledged) >= 0) {
		if (flow->base && acknowledged - flow->base < flow->acknowledged - flow->base)
			flow->wraps++;
		flow->acknowledged = acknowledged;
		flow->window = bpf_ntohs(packet->tcp.window);
		__u32 timestamp = read_timestamp(skb, packet);
		if (timestamp)
			flow->timestamp = timestamp;
	}
}

/* Whether a client only acknowledges what nobody but the new holder can have said: it has the flow, whether leat has heard so or not. */
static __always_inline int shows_holder(const struct packet *packet, const struct flow *flow)
{
	if (!(flow->flags & FLOW_OFFERED) || packet->kind != PACKET_TCP || packet->payload)
		return 0;
	if (!packet->tcp.ack || packet->tcp.syn || packet->tcp.fin || packet->tcp.rst)
		return 0;
	__s32 beyond = bpf_ntohl(packet->tcp.ack_seq) - flow->said;
	return beyond > 0 && beyond <= PLAUSIBLE_BYTES;
}

static __noinline int send_through_routers(struct __sk_buff *skb, const struct packet *packet, const struct node *node)
{
	if (!packet || !node)
		return TC_ACT_SHOT;
	__u8 from[16], to[16];
	__u32 ifindex = node->ifindex;
	__builtin_memcpy(from, packet->destination, 16);
	if (packet->is_ipv4)
		map_ipv4(to, node->address4);
	else
		__builtin_memcpy(to, node->address6, 16);
	if (!set_address(skb, packet, DESTINATION_ADDRESS, from, to))
		return drop(LOST);
	/* The router that says it may be on this way as well, and would drop what comes back with its own address. */
	if (packet->kind == PACKET_ERROR && !set_address(skb, packet, SOURCE_ADDRESS, packet->sender, packet->source))
		return drop(LOST);
	return bpf_redirect_neigh(ifindex, NULL, 0, 0);
}

#ifdef WITH_BIRTHS
/* Until the client has heard of its node, each packet may be the one that makes the connection there. */
static __noinline int name_workers(struct __sk_buff *skb, const struct packet *packet, const struct flow *flow)
{
	if (!packet || !flow)
		return 0;
	if (!(flow->serial & BORN_SERIAL) || !packet->payload || packet->kind != PACKET_TCP || packet->tcp.urg ||
	    bpf_ntohl(packet->tcp.ack_seq) != (__u32)flow->serial + 1)
		return 1;
	__u32 home = NUMBER_OF(flow->home), holder = NUMBER_OF(flow->holder);
	if (flow->generation != GENERATION_BORN && !(flow->flags & FLOW_FOREIGN))
		return set_urgent_pointer(skb, packet, bpf_htons(NAMES_NOBODY));
	if (home >= NAMED_WORKERS || holder >= NAMED_WORKERS)
		return 1;
	return set_urgent_pointer(skb, packet, bpf_htons(home * NAMED_WORKERS + holder));
}
#else
static __always_inline int name_workers(struct __sk_buff *skb, const struct packet *packet, const struct flow *flow)
{
	return 1;
}
#endif

static __always_inline int send_to_node(struct __sk_buff *skb, const struct packet *packet, const struct flow *flow)
{
	__u32 number = SERVER_OF(flow->holder);
	struct node *node = bpf_map_lookup_elem(&nodes, &number);
	if (!node || node->reach == NODE_UNREACHABLE || !name_workers(skb, packet, flow))
		return drop(LOST);
	count(packet->kind == PACKET_ERROR ? ERRORS : STEERED);
	/* The node waits for acknowledgements before it sends on: they don't queue behind this machine's own replies. */
	if (!packet->payload)
		skb->priority = TC_PRIO_INTERACTIVE;
	if (node->reach == NODE_NEIGHBOUR)
		return send_to_neighbour(packet, node);
	if (node->reach == NODE_PEER)
		return count_hop(skb, packet) ? send_to_neighbour(packet, node) : drop(LOST);
	if (node->reach == NODE_ROUTED)
		return send_through_routers(skb, packet, node);
	return drop(LOST);
}

static __always_inline int hold(struct __sk_buff *skb)
{
	__u32 interface = skb->ifindex;
	__u32 *tap = bpf_map_lookup_elem(&taps, &interface);
	if (!tap)
		return drop(LOST);
	count(HELD);
	return bpf_redirect(*tap, 0);
}

/* Instead of a verdict: a connection begins, if leat has said where, or goes on at its holder, if that is where its client's request belongs. */
#define IS_TO_BE_CHOSEN 1000
#define IS_TO_BE_LOOKED_AT 1001

#ifdef WITH_BIRTHS
#define BEGINS 1

/* A connection's first packet goes where leat has chosen for requests like its. Waits if it's to be asked. */
static __noinline int begin_by_choice(struct __sk_buff *skb, const struct packet *packet, const struct flow_key *key)
{
	if (!packet || !key)
		return TC_ACT_SHOT;
	struct flow *flow = bpf_map_lookup_elem(&flows, key);
	if (!flow)
		return hold(skb);
	struct first_packet *first = read_first_packet(skb, packet, flow);
	if (!first)
		return hold(skb);
	__u64 content = first->begun.content;
	struct choice *choice = bpf_map_lookup_elem(&choices, &content);
	if (!choice || bpf_ktime_get_coarse_ns() >= choice->until_ns)
		return hold(skb);
	if (choice->flags & FLOW_FOREIGN && !is_one_request(first))
		return hold(skb);
	__u32 turn = __sync_fetch_and_add(&choice->used, 1);
	if (turn >= choice->limit || !claim(flow))
		return hold(skb);
	__builtin_memcpy(&first->begun.key, key, sizeof(*key));
	first->begun.home = choice->home;
	first->begun.flags = choice->flags;
	first->begun.holder = choice->holders[(choice->first + turn) % choice->turns & (CHOICE_TURNS - 1)];
	asm volatile("" ::: "memory");
	/* Before anybody who has the packet can say something of it. */
	if (choice->content != content || !tell_of(first)) {
		flow->generation = 0;
		return hold(skb);
	}
	flow->home = first->begun.home;
	flow->holder = first->begun.holder;
	flow->base = flow->acknowledged;
	flow->wraps = 0;
	flow->looked_to = first->begun.sequence + first->begun.bytes;
	/* Last: by them packets go on their way. */
	asm volatile("" ::: "memory");
	flow->flags = first->begun.flags;
	remember(skb, packet, flow);
	return send_to_node(skb, packet, flow);
}

/* A connection is this host's own. */
static __always_inline int admit(struct __sk_buff *skb, const struct packet *packet, const struct handshake *handshake)
{
	int kind = find_socket(skb, packet);
	if (kind == SOCKET_CONNECTION)
		return TC_ACT_UNSPEC;
	if (kind == SOCKET_OVER)
		return end_time_wait(skb, packet, NULL);
	int given = give_to_listener(skb, packet, handshake, NULL);
	if (given > 0)
		count(ADMITTED);
	else if (given == NO_ROOM)
		count(CROWDED);
	return TC_ACT_UNSPEC;
}

/* A connection that leat takes back from a server that isn't leat: this host's own listener is to have it. */
static __noinline int admit_planted(struct __sk_buff *skb, const struct packet *packet)
{
	struct handshake handshake = {};
	if (!packet)
		return TC_ACT_SHOT;
	if (find_socket(skb, packet) == SOCKET_CONNECTION)
		return TC_ACT_UNSPEC;
	return check_planting(skb, packet, &handshake, PLANTING_HERE) ? admit(skb, packet, &handshake) : TC_ACT_SHOT;
}

/* Longer than a client takes to say again what was lost of its first packets, if that is lost a few times. */
#define FIRST_PACKETS_MS 3000

/* Whether the first packet of a connection may be still to come: this one has overtaken it, or it was lost. What it echoes isn't older than that; packets that
 * come as soon after their socket's end are taken for such as well, and are reset when they're said again. */
static __always_inline int may_be_early(const struct packet *packet, const struct syn_options *options)
{
	if (!options->has_timestamp || !(packet->payload || packet->tcp.fin))
		return 0;
	return now_ms() - (options->echo & ~OPTIONS_MASK) <= FIRST_PACKETS_MS;
}

/* A packet of no flow: a connection that begins, or one of this host's own. */
static __noinline int begin(struct __sk_buff *skb, const struct packet *packet, const struct flow_key *key)
{
	struct handshake handshake = {};
	struct flow flow = {};
	const __u32 *is_answered = packet ? find_born_vip(packet) : NULL;
	if (!is_answered || !key)
		return TC_ACT_UNSPEC;
	int kind = find_socket(skb, packet);
	if (kind == SOCKET_CONNECTION)
		return TC_ACT_UNSPEC;
	if (packet->tcp.syn) {
		int answer = *is_answered ? answer_syn(skb, packet) : 0;
		if (!answer)
			return TC_ACT_UNSPEC;
		count(ANSWERED);
		return answer;
	}
	if (!check_cookie(skb, packet, &handshake))
		return may_be_early(packet, &handshake.options) ? drop(RESETS) : TC_ACT_UNSPEC;
	if (handshake.age_ms > COOKIE_LIFETIME_MS) {
		count(STALE);
		return TC_ACT_UNSPEC;
	}
	flow.serial = handshake.serial;
	flow.seen_ns = bpf_ktime_get_coarse_ns();
	flow.client_next = bpf_ntohl(packet->tcp.seq);
	flow.acknowledged = bpf_ntohl(packet->tcp.ack_seq);
	flow.timestamp = handshake.options.timestamp;
	flow.window = bpf_ntohs(packet->tcp.window);
	flow.flags = FLOW_HELD | FLOW_BORN;
	flow.options = handshake.options.echo & OPTIONS_MASK;
	flow.scale = OWN_WINDOW_SCALE;
	int error = make(key, &flow, BPF_NOEXIST);
	/* Another processor may have another packet of it at this moment: whoever is second goes on as who was first. */
	if (error < 0 && error != -EEXIST)
		return admit(skb, packet, &handshake);
	if (!error)
		count(AWAITED);
	return packet->payload || packet->tcp.fin ? IS_TO_BE_CHOSEN : TC_ACT_SHOT;
}

/* A packet of a connection that no host has a socket of: leat says which is to have one, when it has seen the request, or has said so before. */
static __noinline int go_on(struct __sk_buff *skb, const struct packet *packet, struct flow *flow)
{
	struct handshake handshake = {};
	if (!packet || !flow)
		return TC_ACT_SHOT;
	if (packet->kind != PACKET_TCP)
		return TC_ACT_SHOT;
	if (flow->flags & FLOW_HERE)
		return check_cookie(skb, packet, &handshake) ? admit(skb, packet, &handshake) : TC_ACT_UNSPEC;
	if (packet->tcp.rst && bpf_ntohl(packet->tcp.seq) == flow->client_next) {
		flow->reset = 1;
		return TC_ACT_SHOT;
	}
	/* Without data, what comes after the handshake says nothing that anybody has to know; but a reset behind data is said once, to whoever is given that. */
	return packet->payload || packet->tcp.fin || packet->tcp.rst ? IS_TO_BE_CHOSEN : TC_ACT_SHOT;
}
#else
#define BEGINS 0

static __always_inline int begin(struct __sk_buff *skb, const struct packet *packet, const struct flow_key *key)
{
	return TC_ACT_UNSPEC;
}

static __always_inline int go_on(struct __sk_buff *skb, const struct packet *packet, struct flow *flow)
{
	return hold(skb);
}

static __always_inline int begin_by_choice(struct __sk_buff *skb, const struct packet *packet, const struct flow_key *key)
{
	return TC_ACT_SHOT;
}

static __always_inline int claim(struct flow *flow)
{
	return 1;
}

static __always_inline int goes_on_unasked(struct __sk_buff *skb, const struct packet *packet, struct flow *flow)
{
	return 1;
}

static __always_inline int is_between_servers(const struct flow *flow)
{
	return 0;
}

static __always_inline int is_planting(struct __sk_buff *skb, const struct packet *packet)
{
	return 0;
}

static __always_inline int admit_planted(struct __sk_buff *skb, const struct packet *packet)
{
	return TC_ACT_SHOT;
}
#endif

/* Connections that began at the heir while this host's kernel still remembered one before them with the same ends, for a minute. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 12);
	__type(key, struct flow_key);
	__type(value, __u8);
} begun_at_heir SEC(".maps");

/* Whether a packet is of a connection that is over, and not of one that the heir has since. */
static __noinline int is_over_here(const struct packet *packet)
{
	if (!packet)
		return 0;
	struct flow_key key = {};
	set_key(&key, packet);
	if (packet->kind != PACKET_TCP || !packet->tcp.syn)
		return !bpf_map_lookup_elem(&begun_at_heir, &key);
	__u8 begun = 1;
	bpf_map_update_elem(&begun_at_heir, &key, &begun, BPF_ANY);
	return 0;
}

/* Who has the connection of a packet of no flow, if that isn't this host: what has a socket here stays here. */
static __always_inline const struct heir *find_heir(struct __sk_buff *skb, const struct packet *packet)
{
	struct service_key key = {};
	__builtin_memcpy(key.address, packet->destination, 16);
	key.port = packet->destination_port;
	const struct heir *heir = bpf_map_lookup_elem(&heirs, &key);
	if (!heir)
		return NULL;
	int is_syn = packet->kind == PACKET_TCP && packet->tcp.syn;
	int kind = find_socket(skb, packet);
	if (kind == SOCKET_CONNECTION || (is_syn && !heir->begins) || (kind == SOCKET_OVER && is_over_here(packet)))
		return NULL;
	if (kind == SOCKET_LISTENER && packet->kind == PACKET_TCP && !is_syn && has_syn_cookie(skb, packet))
		return NULL;
	return heir;
}

/* Sends a packet of no flow to the heir that has its connection. Returns 0 if there is none. */
static __noinline int leave(struct __sk_buff *skb, const struct packet *packet)
{
	if (!packet)
		return TC_ACT_SHOT;
	const struct heir *heir = find_heir(skb, packet);
	if (!heir)
		return 0;
	__u32 number = heir->node;
	const struct node *node = bpf_map_lookup_elem(&nodes, &number);
	if (!node || node->reach != NODE_NEIGHBOUR)
		return drop(LOST);
	count(packet->kind == PACKET_ERROR ? ERRORS : STEERED);
	return send_to_neighbour(packet, node);
}

static __always_inline int leave_or_begin(struct __sk_buff *skb, const struct packet *packet, const struct flow_key *key)
{
	int left = leave(skb, packet);
	if (left)
		return left;
	return packet->kind == PACKET_TCP ? begin(skb, packet, key) : TC_ACT_UNSPEC;
}

/* A packet of a flow goes to its holder. By itself, as the stack over all calls has 512 bytes, which is counted in pieces of 32. */
static __noinline int send_on(struct __sk_buff *skb, const struct packet *packet, struct flow *flow)
{
	if (!packet || !flow)
		return TC_ACT_SHOT;
	if (packet->kind == PACKET_TCP) {
		/* A SYN on a flow that lives is for the node's kernel to challenge (RFC 5961, section 4). */
		if (!packet->tcp.syn)
			remember(skb, packet, flow);
		if (packet->payload && !(flow->flags & FLOW_FOREIGN))
			keep_request(skb, packet);
	}
	return send_to_node(skb, packet, flow);
}

/* What becomes of a packet. */
static __always_inline int steer(struct __sk_buff *skb, const struct packet *packet, const struct flow_key *key)
{
	if (!packet || !key)
		return TC_ACT_SHOT;
	struct flow *flow = bpf_map_lookup_elem(&flows, key);
	if (!flow)
		return leave_or_begin(skb, packet, key);
	/* One that nobody has yet is known by its cookie, entry or not. */
	if (flow->client_fin || flow->reset || flow->flags & (FLOW_NODE_CLOSED | FLOW_BORN | FLOW_CUT)) {
		int is_syn = packet->kind == PACKET_TCP && packet->tcp.syn;
		if (is_syn || (!BEGINS && is_of_next(packet, flow->client_next, flow->acknowledged))) {
			bpf_map_delete_elem(&flows, key);
			count(REPLACED);
			return leave_or_begin(skb, packet, key);
		}
	}
	if (flow->flags & FLOW_CUT) {
		/* Not looked at any further: what its client sends again has a cookie that would begin it anew. */
		if (packet->kind == PACKET_TCP)
			remember(skb, packet, flow);
		return TC_ACT_UNSPEC;
	}
	if (flow->flags & FLOW_BORN)
		return go_on(skb, packet, flow);
	if (flow->flags & FLOW_HELD)
		/* Its client may say nothing more: what it has is to be known if the holder dies. */
		return shows_holder(packet, flow) ? send_on(skb, packet, flow) : hold(skb);
	if (BEGINS && flow->flags & FLOW_WATCHED && packet->kind == PACKET_TCP && !packet->tcp.syn)
		return IS_TO_BE_LOOKED_AT;
	return send_on(skb, packet, flow);
}

/* A packet of a connection that is watched goes to its holder, or waits until leat has said where it belongs. */
static __noinline int go_on_if_it_belongs(struct __sk_buff *skb, const struct packet *packet, const struct flow_key *key)
{
	if (!packet || !key)
		return TC_ACT_SHOT;
	struct flow *flow = bpf_map_lookup_elem(&flows, key);
	if (!flow)
		return TC_ACT_SHOT;
	if (flow->turn == TURN_LEAT && packet->payload && is_planting(skb, packet))
		return admit_planted(skb, packet);
	if (!goes_on_unasked(skb, packet, flow)) {
		flow->seen_ns = bpf_ktime_get_coarse_ns();
		count(ASKED);
		return hold(skb);
	}
	/* The kernel of either would reset the client, who has said nothing new by this. */
	if (is_between_servers(flow) && !packet->tcp.rst)
		return drop(LOST);
	remember(skb, packet, flow);
	return send_to_node(skb, packet, flow);
}

SEC("classifier")
int dispatcher_ingress(struct __sk_buff *skb)
{
	struct packet packet;
	struct flow_key key;
	if (!BEGINS && !has_flows() && !total(HEIRS))
		return TC_ACT_UNSPEC;
	read_packet(skb, &packet);
	if (packet.kind == PACKET_OTHER)
		return TC_ACT_UNSPEC;
	if (rounds_of(skb))
		return end_handshake(skb, &packet, NULL);
	set_key(&key, &packet);
	int verdict = steer(skb, &packet, &key);
	if (verdict == IS_TO_BE_CHOSEN)
		return begin_by_choice(skb, &packet, &key);
	if (verdict == IS_TO_BE_LOOKED_AT)
		verdict = go_on_if_it_belongs(skb, &packet, &key);
	if (verdict == TC_ACT_UNSPEC && !translate_inward(skb, &packet))
		return TC_ACT_SHOT;
	return verdict;
}

/* Fields that packets write stay as they are but where the change says what they are to be. */
static __always_inline int make_change(__u32 data, __u32 data_end)
{
	const struct change *wanted = (const void *)(long)data;
	if ((const void *)(wanted + 1) > (const void *)(long)data_end)
		return CHANGE_FAILED;
	struct change change = *wanted;
	struct flow *flow = bpf_map_lookup_elem(&flows, &change.key);
	if (!flow || flow->serial != change.to.serial || flow->home != change.home) {
		__u64 flag = change.what & CHANGE_REPLACES ? BPF_ANY : BPF_NOEXIST;
		if (!(change.what & (CHANGE_MAKES | CHANGE_REPLACES)))
			return CHANGE_GONE;
		switch (make(&change.key, &change.to, flag)) {
		case 0:
			return CHANGE_DONE;
		case -EEXIST:
			return CHANGE_GONE;
		case -E2BIG:
			return CHANGE_FULL;
		default:
			return CHANGE_FAILED;
		}
	}
	if (change.what & CHANGE_BEGINS && !claim(flow))
		return CHANGE_GONE;
	if (change.what & CHANGE_DELETES)
		return bpf_map_delete_elem(&flows, &change.key) == 0 ? CHANGE_DONE : CHANGE_GONE;
	if (change.what & CHANGE_HEARD) {
		flow->client_next = change.to.client_next;
		flow->acknowledged = change.to.acknowledged;
		flow->timestamp = change.to.timestamp;
		flow->window = change.to.window;
	}
	if (change.what & CHANGE_HOLDER) {
		flow->home = change.to.home;
		flow->holder = change.to.holder;
		flow->generation = change.to.generation;
		flow->said = change.to.said;
		flow->base = flow->acknowledged;
		flow->wraps = 0;
	}
	if (change.what & CHANGE_LOOKED) {
		flow->looked_to = change.to.looked_to;
		flow->turn = change.to.turn;
		flow->options = change.to.options;
		flow->scale = change.to.scale;
		/* The reset with which leat takes it from its last holder: after its turn (`is_between_servers`). */
		asm volatile("" ::: "memory");
		flow->reset = 0;
	}
	flow->seen_ns = change.to.seen_ns;
	/* Last: by them packets go on their way. */
	asm volatile("" ::: "memory");
	flow->flags = (flow->flags & ~change.cleared) | change.to.flags;
	return CHANGE_DONE;
}

/* Not for packets: leat runs them with a change. For XDP, as the kernel makes a socket for each run of a classifier. */
SEC("xdp")
int change_flow(struct xdp_md *context)
{
	return make_change(context->data, context->data_end);
}

/* The same where the kernel takes each run of an XDP program for one on an interface, and waits until all processors know. */
SEC("classifier")
int change_flow_as_packet(struct __sk_buff *skb)
{
	return make_change(skb->data, skb->data_end);
}

/* Longer than a connection's first packet takes from leat to its socket. */
#define OVERTAKEN_NS 1000000000LL

/* The longest frame whose segment says nothing but what its header does. */
#define BARE_BYTES_MAX (ETH_HLEN + sizeof(struct ipv6hdr) + 60)

/* Whether a reset is of a connection that began here: a socket says so by an acknowledgement. Where there is none, a packet may have overtaken the one that
 * makes it, but not for long; and none that acknowledges what only a socket can have said. */
static __always_inline int is_own(const struct packet *packet, const struct flow *flow)
{
	if (!(flow->flags & FLOW_HERE))
		return 0;
	if (packet->tcp.ack || bpf_ntohl(packet->tcp.seq) != flow->acknowledged)
		return 1;
	return (__s64)(bpf_ktime_get_coarse_ns() - flow->seen_ns) >= OVERTAKEN_NS;
}

/* While others hold a flow, this host must not reset it: packets that were past the ingress when the entry was made still find no socket. And who connects
 * doesn't wait behind this machine's replies to others: the request may be for a node whose link is idle. */
SEC("classifier")
int dispatcher_egress(struct __sk_buff *skb)
{
	struct packet packet;
	struct flow_key key;
	/* What has come from elsewhere, as all that is sent to nodes has, isn't this host's. */
	if (skb->ingress_ifindex)
		return TC_ACT_UNSPEC;
	if (!translate_outward(skb))
		return TC_ACT_SHOT;
	if (skb->len > BARE_BYTES_MAX)
		return TC_ACT_UNSPEC;
	read_packet(skb, &packet);
	if (packet.kind != PACKET_TCP)
		return TC_ACT_UNSPEC;
	if (packet.tcp.syn)
		skb->priority = TC_PRIO_INTERACTIVE;
	if (!packet.tcp.rst || !has_flows())
		return TC_ACT_UNSPEC;
	set_outward_key(&key, &packet);
	const struct flow *flow = bpf_map_lookup_elem(&flows, &key);
	return flow && !(flow->flags & FLOW_CUT) && !is_own(&packet, flow) ? drop(RESETS) : TC_ACT_UNSPEC;
}

/* What was held and is put back arrives anew at the interface where it had arrived. */
SEC("classifier")
int tap_ingress(struct __sk_buff *skb)
{
	__u32 interface = skb->ifindex;
	__u32 *uplink = bpf_map_lookup_elem(&taps, &interface);
	if (!uplink)
		return TC_ACT_SHOT;
	return bpf_redirect(*uplink, BPF_F_INGRESS);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
