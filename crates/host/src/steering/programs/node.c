/* At a server that holds connections of a VIP whose packets arrive elsewhere: lets in what belongs to a connection, and lets nothing out that
 * would harm one that somebody else holds. */
#include <stddef.h>

#ifdef WITH_BIRTHS
#ifdef WITH_REPLAYS
#include "replay.h"
#else
#include "born.h"
#endif
#include "planted.h"
#include "replies.h"
#else
#include "untranslated.h"
#endif
#include "socket.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct service_key);
	__type(value, struct service);
} services SEC(".maps");

/* Until when this server may speak for the VIP: CLOCK_BOOTTIME, nanoseconds. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lease SEC(".maps");

COUNTERS(node_counters, NODE_COUNTERS)

static __always_inline int drop(__u32 why)
{
	count(why);
	return TC_ACT_SHOT;
}

static __always_inline struct service *find_service(const __u8 *address, __be16 port)
{
	struct service_key key = {};
	__builtin_memcpy(key.address, address, 16);
	key.port = port;
	return bpf_map_lookup_elem(&services, &key);
}

/* How far the client of a connection at a foreign server has come, the last of its place. */
struct course {
	__be32 client;
	__be32 vip;
	__be16 client_port;
	__be16 vip_port;
	__u32 next; /* the sequence number that follows */
};

#define COURSES_BITS 13

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << COURSES_BITS);
	__type(key, __u32);
	__type(value, struct course);
} courses SEC(".maps");

static __always_inline struct course *find_course(__be32 client, __be16 client_port)
{
	/* The golden ratio's bits spread neighbours. */
	__u32 place = (client ^ (__u32)client_port << 16 ^ client_port) * 0x9e3779b9U >> (32 - COURSES_BITS);
	return bpf_map_lookup_elem(&courses, &place);
}

/* A packet belongs to a connection, or makes one. */
static __always_inline void note_course(const struct packet *packet)
{
	if (!packet->is_ipv4)
		return;
	__be32 client = mapped_ipv4(packet->source);
	struct course *course = find_course(client, packet->source_port);
	if (!course)
		return;
	course->client = client;
	course->vip = mapped_ipv4(packet->destination);
	course->client_port = packet->source_port;
	course->vip_port = packet->destination_port;
	course->next = bpf_ntohl(packet->tcp.seq) + packet->payload;
}

#ifdef WITH_BIRTHS
/* Connections that began here, the last of each client's port. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, struct flow_key);
	__type(value, struct birth);
} births SEC(".maps");

/* By a worker's number: the place of its listener among those that share their address, counted from 1; 0 for a worker that isn't there. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NAMED_WORKERS);
	__type(key, __u32);
	__type(value, __u32);
} places SEC(".maps");

/* The birth of a connection, and once one side of it has said goodbye, that it's over. Only a foreign server's are asked for by this: from then on
 * nothing makes it once more, and what comes after its end is answered by the kernel, as without leat. */
static __noinline int is_over(const struct packet *packet, int is_outward)
{
	struct flow_key key;
	if (!packet)
		return 0;
	if (is_outward)
		set_outward_key(&key, packet);
	else
		set_key(&key, packet);
	struct birth *birth = bpf_map_lookup_elem(&births, &key);
	if (!birth)
		return 0;
	/* A reset without ACK says only that there was no connection, yet or any more. */
	if (!is_outward || packet->tcp.ack)
		birth->is_accepted = 1;
	if (!is_outward && packet->tcp.fin)
		birth->client_next = bpf_ntohl(packet->tcp.seq) + packet->payload + 1;
	return birth->is_accepted;
}

/* By how much the numbers of a client's connections differ at most that began within 128 ms, where they rise as RFC 6528 has it (Linux: 16 a microsecond). */
#define RISES_BY (1 << 22)

/* Whether a packet has been late on its way, behind one of the same client's port that has made a connection here since. Times are known to 128 ms only, as a
 * cookie's lowest bits are options. Within that, what is a little lower is older; a client whose numbers are anywhere is taken for late once in a thousand times. */
static __always_inline int is_late(const struct birth *birth, const struct birth *last)
{
	__s32 later = (birth->echo | OPTIONS_MASK) - (last->echo | OPTIONS_MASK);
	if (later)
		return later < 0;
	return last->sequence - birth->sequence - 1 < RISES_BY;
}

/* A packet that has no connection may make one: its cookie shows that the dispatcher has answered its client's SYN. */
static __noinline int begin(struct __sk_buff *skb, const struct packet *packet, int kind, const struct service *service)
{
	struct handshake handshake = {};
	struct birth birth = {};
	struct flow_key key;
	if (!packet || !service)
		return TC_ACT_UNSPEC;
	__u32 is_foreign = service->flags & SERVICE_FOREIGN;
	if (REPLAYS && !is_foreign)
		return kind == SOCKET_OVER ? TC_ACT_UNSPEC : drop(STRAY);
	set_key(&key, packet);
	const struct birth *last = bpf_map_lookup_elem(&births, &key);
	int is_planted = 0;
	if (!check_cookie(skb, packet, &handshake) && !(is_foreign && (is_planted = check_planting(skb, packet, &handshake, 0)))) {
		if (kind == SOCKET_OVER)
			return TC_ACT_UNSPEC;
		/* One of several that came at once: the first will have made the connection when this is looked at. */
		if (last && (is_foreign || !last->is_accepted))
			return TC_ACT_UNSPEC;
		return drop(packet->payload ? FORGED : STRAY);
	}
	birth.serial = handshake.serial;
	birth.echo = handshake.made;
	birth.names = bpf_ntohs(packet->tcp.urg_ptr);
	birth.sequence = bpf_ntohl(packet->tcp.seq);
	/* What was late on its way must not ask for the same again. */
	if (last && (last->serial == birth.serial ? last->is_accepted : is_late(&birth, last)))
		return kind == SOCKET_OVER ? TC_ACT_UNSPEC : drop(REPEATED);
	if (kind == SOCKET_OVER)
		return end_time_wait(skb, packet, is_foreign && last ? &last->client_next : NULL);
	if (!is_foreign) {
		if (birth.names == NAMES_NOBODY)
			return drop(STRAY);
		__u32 worker = birth.names % NAMED_WORKERS;
		const __u32 *place = bpf_map_lookup_elem(&places, &worker);
		/* Which of the listeners the kernel takes goes by that (leat has told it so). */
		if (!place || !*place || !set_urgent_pointer(skb, packet, bpf_htons(*place)))
			return drop(STRAY);
	}
	if (bpf_map_update_elem(&births, &key, &birth, BPF_ANY))
		return drop(STRAY);
	/* Before it's given: then it may be another packet. */
	if (is_watching())
		note_request(skb, packet, 1);
	int given = give_to_listener(skb, packet, &handshake, service);
	if (given > 0) {
		count(is_planted ? PLANTED : BORN);
		if (REPLAYS)
			count(REPLAYED);
		if (is_foreign)
			note_course(packet);
		return TC_ACT_UNSPEC;
	}
	if (!is_foreign)
		return drop(STRAY);
	/* The server doesn't listen, or there's no room: the kernel refuses the connection. */
	birth.is_accepted = 1;
	bpf_map_update_elem(&births, &key, &birth, BPF_ANY);
	count(given == NO_ROOM ? NODE_CROWDED : UNHEARD);
	return TC_ACT_UNSPEC;
}

static __always_inline int make_mark(__u32 data, __u32 data_end)
{
	const struct mark *wanted = (const void *)(long)data;
	if ((const void *)(wanted + 1) > (const void *)(long)data_end)
		return CHANGE_FAILED;
	struct mark mark = *wanted;
	if (mark.what == MARK_ACCEPTED) {
		struct birth *birth = bpf_map_lookup_elem(&births, &mark.key);
		if (!birth || birth->serial != mark.serial)
			return CHANGE_GONE;
		birth->is_accepted = 1;
		return CHANGE_DONE;
	}
	struct reply *reply = bpf_map_lookup_elem(&replies, &mark.key);
	if (!reply)
		return CHANGE_GONE;
	reply->is_given = mark.what == MARK_GIVEN;
	return CHANGE_DONE;
}

/* Not for packets: leat runs them with a mark. Why there are two, `change_flow` of the dispatcher says. */
SEC("xdp")
int mark(struct xdp_md *context)
{
	return make_mark(context->data, context->data_end);
}

SEC("classifier")
int mark_as_packet(struct __sk_buff *skb)
{
	return make_mark(skb->data, skb->data_end);
}
#else
static __always_inline int is_watching(void)
{
	return 0;
}

static __always_inline void note_request(struct __sk_buff *skb, const struct packet *packet, int begins)
{
}

static __always_inline int note_reply(struct __sk_buff *skb)
{
	return 0;
}

static __always_inline int is_over(const struct packet *packet, int is_outward)
{
	return 0;
}

static __always_inline int begin(struct __sk_buff *skb, const struct packet *packet, int kind, const struct service *service)
{
	return kind == SOCKET_OVER ? TC_ACT_UNSPEC : drop(STRAY);
}
#endif

/* Whether a packet can't make a connection at a foreign server, so that nobody has to know whether there is one. Either it only acknowledges: where there is no
 * connection, the kernel's reset is looked at when it leaves. Or it goes on where the last packet of its connection ended: one that begins doesn't, as its
 * numbers are others. */
static __always_inline int goes_on(const struct __sk_buff *skb)
{
	struct iphdr *ip;
	const struct tcphdr *tcp = simple_tcp(skb, &ip);
	if (!tcp || tcp->syn || tcp->fin || tcp->rst || skb->gso_segs > 1)
		return 0;
	__u32 payload = bpf_ntohs(ip->tot_len) - sizeof(*ip) - tcp->doff * 4;
	if (!payload) {
		__u8 address[16];
		map_ipv4(address, ip->daddr);
		const struct service *service = find_service(address, tcp->dest);
		return service && (service->flags & (SERVICE_FOREIGN | SERVICE_OWN)) == SERVICE_FOREIGN;
	}
	struct course *course = find_course(ip->saddr, tcp->source);
	if (!course || course->client != ip->saddr || course->vip != ip->daddr || course->client_port != tcp->source ||
	    course->vip_port != tcp->dest || course->next != bpf_ntohl(tcp->seq))
		return 0;
	course->next += payload;
	return 1;
}

SEC("classifier")
int node_ingress(struct __sk_buff *skb)
{
	struct packet packet;
	if (REPLAYS && !is_watching() && translate_simply(skb, 0) == IS_TRANSLATED) {
		count(RECEIVED);
		return TC_ACT_UNSPEC;
	}
	int goes = !REPLAYS && goes_on(skb);
	if (goes && !is_watching()) {
		count(RECEIVED);
		return TC_ACT_UNSPEC;
	}
	read_packet(skb, &packet);
	if (goes) {
		note_request(skb, &packet, 0);
		count(RECEIVED);
		return TC_ACT_UNSPEC;
	}
	if (packet.kind != PACKET_TCP)
		return translate_inward(skb, &packet) ? TC_ACT_UNSPEC : drop(STRAY);
	struct service *service = find_service(packet.destination, packet.destination_port);
	if (!service)
		return TC_ACT_UNSPEC;
	if (service->flags & SERVICE_OWN) {
		/* Connections to the node itself live beside those that were sent here under its address; these never begin with a SYN. */
		if (packet.tcp.syn || find_socket(skb, &packet) == SOCKET_CONNECTION)
			return TC_ACT_UNSPEC;
		__u8 vip[16];
		__builtin_memcpy(vip, service->vip, 16);
		if (!set_address(skb, &packet, DESTINATION_ADDRESS, packet.destination, vip))
			return drop(STRAY);
		__builtin_memcpy(packet.destination, vip, 16);
		count(RESTORED);
	}
	if (rounds_of(skb))
		return end_handshake(skb, &packet, service);
	int kind = find_socket(skb, &packet);
	if (service->flags & SERVICE_FOREIGN) {
		/* What the server has closed already may be waiting for this: the kernel counts it with those that are over. */
		if ((packet.tcp.fin || packet.tcp.rst) && (kind == SOCKET_CONNECTION || kind == SOCKET_OVER))
			is_over(&packet, 0);
		else if (kind == SOCKET_CONNECTION && !REPLAYS)
			note_course(&packet);
		if (kind == SOCKET_CONNECTION && is_watching())
			note_request(skb, &packet, 0);
	}
	/* Without a connection the kernel would reset it: it may be about to be taken, or just have been given. */
	if (kind == SOCKET_NONE || (kind != SOCKET_CONNECTION && !packet.tcp.syn)) {
		int verdict = begin(skb, &packet, kind, service);
		if (verdict != TC_ACT_UNSPEC)
			return verdict;
	} else {
		count(RECEIVED);
	}
	return translate_inward(skb, &packet) ? TC_ACT_UNSPEC : drop(STRAY);
}

/* Whether it ends or resets a connection, or isn't simple. */
static __always_inline int may_be_goodbye(const struct __sk_buff *skb)
{
	struct iphdr *ip;
	const struct tcphdr *tcp = simple_tcp(skb, &ip);
	return !tcp || tcp->fin || tcp->rst;
}

SEC("classifier")
int node_egress(struct __sk_buff *skb)
{
	struct packet packet;
	__u32 zero = 0;
	__u64 *until_ns = bpf_map_lookup_elem(&lease, &zero);
	/* First, so that all else sees what its client does. */
	if (!translate_outward(skb))
		return TC_ACT_SHOT;
	if (is_watching() && note_reply(skb))
		return drop(GIVEN);
	/* What foreign servers say is looked at only where it may end something. */
	if (until_ns && *until_ns == NO_LEASE && !may_be_goodbye(skb))
		return TC_ACT_UNSPEC;
	read_packet(skb, &packet);
	if (packet.kind != PACKET_TCP)
		return TC_ACT_UNSPEC;
	struct service *service = find_service(packet.source, packet.source_port);
	if (!service || service->flags & SERVICE_OWN)
		return TC_ACT_UNSPEC;
	if (service->flags & SERVICE_FOREIGN) {
		/* Nobody else ever has its connections: it may speak for them without a lease. */
		if ((packet.tcp.rst || packet.tcp.fin) && !is_over(&packet, 1) && !packet.tcp.ack)
			return drop(NODE_RESETS);
		return TC_ACT_UNSPEC;
	}
	if (!until_ns || bpf_ktime_get_boot_ns() >= *until_ns) {
		/* What is over here only answers what the home still sends here. Unanswered, the client's last FIN would keep its port. */
		turn_round(&packet);
		return !packet.tcp.rst && find_socket(skb, &packet) == SOCKET_OVER ? TC_ACT_UNSPEC : drop(FENCED);
	}
	/* A reset without ACK answers a segment that found no connection, because it raced with a handoff. */
	if (packet.tcp.rst && !packet.tcp.ack)
		return drop(NODE_RESETS);
	if ((packet.tcp.rst || packet.tcp.fin) && service->flags & SERVICE_MARKED && skb->mark != CLOSING_MARK)
		return drop(GOODBYES);
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
