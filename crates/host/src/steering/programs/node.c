/* At a server that holds connections of a VIP whose packets arrive elsewhere: lets in what belongs to a connection, and lets nothing out that
 * would harm one that somebody else holds. */
#include <stddef.h>

#ifdef WITH_BIRTHS
#include "born.h"
#else
#include "packet.h"
#endif

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

/* A packet that has no connection may make one: its cookie shows that the dispatcher has answered its client's SYN. */
static __noinline int begin(struct __sk_buff *skb, const struct packet *packet, int kind)
{
	struct handshake handshake = {};
	struct birth birth = {};
	struct flow_key key;
	if (!packet)
		return TC_ACT_UNSPEC;
	__builtin_memcpy(key.client, packet->source, 16);
	__builtin_memcpy(key.vip, packet->destination, 16);
	key.client_port = packet->source_port;
	key.vip_port = packet->destination_port;
	const struct birth *last = bpf_map_lookup_elem(&births, &key);
	if (!check_cookie(skb, packet, &handshake)) {
		if (kind == SOCKET_OVER)
			return TC_ACT_UNSPEC;
		/* One of several that came at once: the first will have made the connection when this is looked at. */
		if (last && !last->is_accepted)
			return TC_ACT_UNSPEC;
		return drop(packet->payload ? FORGED : STRAY);
	}
	birth.serial = handshake.serial;
	birth.echo = handshake.options.echo;
	birth.names = bpf_ntohs(packet->tcp.urg_ptr);
	/* What was late on its way must not ask for the same again. */
	if (last && (last->serial == birth.serial ? last->is_accepted : (__s32)(birth.echo - last->echo) < 0))
		return kind == SOCKET_OVER ? TC_ACT_UNSPEC : drop(REPEATED);
	if (kind == SOCKET_OVER)
		return end_time_wait(skb, packet);
	__u32 worker = birth.names % NAMED_WORKERS;
	const __u32 *place = bpf_map_lookup_elem(&places, &worker);
	/* Which of the listeners the kernel takes goes by that (leat has told it so). */
	if (!place || !*place || !set_urgent_pointer(skb, packet, bpf_htons(*place)))
		return drop(STRAY);
	if (bpf_map_update_elem(&births, &key, &birth, BPF_ANY) < 0 || !give_to_listener(skb, packet, &handshake))
		return drop(STRAY);
	count(BORN);
	return TC_ACT_UNSPEC;
}
#else
static __always_inline int begin(struct __sk_buff *skb, const struct packet *packet, int kind)
{
	return kind == SOCKET_OVER ? TC_ACT_UNSPEC : drop(STRAY);
}
#endif

SEC("classifier")
int node_ingress(struct __sk_buff *skb)
{
	struct packet packet;
	read_packet(skb, &packet);
	if (packet.kind != PACKET_TCP)
		return TC_ACT_UNSPEC;
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
	int kind = find_socket(skb, &packet);
	/* Without a connection the kernel would reset it: it may be about to be taken, or just have been given. */
	if (kind == SOCKET_NONE || (kind != SOCKET_CONNECTION && !packet.tcp.syn))
		return begin(skb, &packet, kind);
	count(RECEIVED);
	return TC_ACT_UNSPEC;
}

SEC("classifier")
int node_egress(struct __sk_buff *skb)
{
	struct packet packet;
	__u32 zero = 0;
	read_packet(skb, &packet);
	if (packet.kind != PACKET_TCP)
		return TC_ACT_UNSPEC;
	struct service *service = find_service(packet.source, packet.source_port);
	if (!service || service->flags & SERVICE_OWN)
		return TC_ACT_UNSPEC;
	__u64 *until_ns = bpf_map_lookup_elem(&lease, &zero);
	if (!until_ns || bpf_ktime_get_boot_ns() >= *until_ns)
		return drop(FENCED);
	/* A reset without ACK answers a segment that found no connection, because it raced with a handoff. */
	if (packet.tcp.rst && !packet.tcp.ack)
		return drop(NODE_RESETS);
	if ((packet.tcp.rst || packet.tcp.fin) && service->flags & SERVICE_MARKED && skb->mark != CLOSING_MARK)
		return drop(GOODBYES);
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
