/* Who listens. */
#pragma once
#include "packet.h"

/* Instead of whether a listener is given a connection: it can't be, as there's no room for another whose packets are translated. */
#define NO_ROOM (-1)

/* Who listens at an address, whatever else there is of the packet's connection: nobody sends from port 0. */
static __always_inline struct bpf_sock *find_listener(struct __sk_buff *skb, const struct packet *packet, const __u8 *address, __be16 port)
{
	struct bpf_sock_tuple tuple = {};
	if (packet->is_ipv4) {
		/* The port takes part, so that listeners that share an address share connections. */
		tuple.ipv4.saddr = mapped_ipv4(packet->source) ^ (__u32)packet->source_port << 16;
		tuple.ipv4.daddr = mapped_ipv4(address);
		tuple.ipv4.dport = port;
		return bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
	}
	__builtin_memcpy(tuple.ipv6.saddr, packet->source, 16);
	tuple.ipv6.saddr[3] ^= (__u32)packet->source_port << 16;
	__builtin_memcpy(tuple.ipv6.daddr, address, 16);
	tuple.ipv6.dport = port;
	return bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv6), BPF_F_CURRENT_NETNS, 0);
}

static __always_inline struct bpf_sock *find_own_listener(struct __sk_buff *skb, const struct packet *packet)
{
	return find_listener(skb, packet, packet->destination, packet->destination_port);
}
