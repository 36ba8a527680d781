/* At a server that holds connections of a VIP whose packets arrive elsewhere: lets in what belongs to a connection, and lets nothing out that
 * would harm one that somebody else holds. */
#include <stddef.h>

#include "packet.h"

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

enum socket_kind { SOCKET_NONE, SOCKET_LISTENER, SOCKET_CONNECTION };

static __always_inline enum socket_kind find_socket(struct __sk_buff *skb, const struct packet *packet)
{
	struct bpf_sock_tuple tuple = {};
	__u32 size;
	if (packet->is_ipv4) {
		tuple.ipv4.saddr = mapped_ipv4(packet->source);
		tuple.ipv4.daddr = mapped_ipv4(packet->destination);
		tuple.ipv4.sport = packet->source_port;
		tuple.ipv4.dport = packet->destination_port;
		size = sizeof(tuple.ipv4);
	} else {
		__builtin_memcpy(tuple.ipv6.saddr, packet->source, 16);
		__builtin_memcpy(tuple.ipv6.daddr, packet->destination, 16);
		tuple.ipv6.sport = packet->source_port;
		tuple.ipv6.dport = packet->destination_port;
		size = sizeof(tuple.ipv6);
	}
	struct bpf_sock *socket = bpf_skc_lookup_tcp(skb, &tuple, size, BPF_F_CURRENT_NETNS, 0);
	if (!socket)
		return SOCKET_NONE;
	enum socket_kind kind = socket->state == BPF_TCP_LISTEN ? SOCKET_LISTENER : SOCKET_CONNECTION;
	bpf_sk_release(socket);
	return kind;
}

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
	enum socket_kind kind = find_socket(skb, &packet);
	/* Without a connection the kernel would reset it: it may be about to be taken, or just have been given. */
	if (kind == SOCKET_NONE || (kind == SOCKET_LISTENER && !packet.tcp.syn))
		return drop(STRAY);
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
