/* The way to nodes. Which of them a packet goes to is decided elsewhere. */
#pragma once
#include <stddef.h>

#include "packet.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NODES_MAX);
	__type(key, __u32);
	__type(value, struct node);
} nodes SEC(".maps");

/* Counts a hop, as routers do. Returns false when it was the packet's last: entries of a connection that was lost on its way may lead round in a circle. */
static __always_inline int count_hop(struct __sk_buff *skb, const struct packet *packet)
{
	__u32 at = ETH_HLEN + (packet->is_ipv4 ? offsetof(struct iphdr, ttl) : offsetof(struct ipv6hdr, hop_limit));
	__u8 left;
	if (bpf_skb_load_bytes(skb, at, &left, sizeof(left)) < 0 || left <= 1)
		return 0;
	left--;
	if (packet->is_ipv4 && bpf_l3_csum_replace(skb, ETH_HLEN + offsetof(struct iphdr, check), bpf_htons((left + 1) << 8), bpf_htons(left << 8), 2) < 0)
		return 0;
	return bpf_skb_store_bytes(skb, at, &left, sizeof(left), 0) == 0;
}

static __always_inline int send_to_neighbour(const struct packet *packet, const struct node *node)
{
	struct bpf_redir_neigh next = {};
	if (packet->is_ipv4 && node->address4) {
		next.nh_family = AF_INET;
		next.ipv4_nh = node->address4;
	} else {
		next.nh_family = AF_INET6;
		__builtin_memcpy(next.ipv6_nh, node->address6, 16);
	}
	return bpf_redirect_neigh(node->ifindex, &next, sizeof(next), 0);
}
