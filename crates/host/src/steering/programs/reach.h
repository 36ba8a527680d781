/* The way to nodes. Which of them a packet goes to is decided elsewhere. */
#pragma once
#include "packet.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NODES_MAX);
	__type(key, __u32);
	__type(value, struct node);
} nodes SEC(".maps");

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
