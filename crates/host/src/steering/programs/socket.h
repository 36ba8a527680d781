/* What this host has of a packet's connection. */
#pragma once
#include "packet.h"

static __noinline int find_socket(struct __sk_buff *skb, const struct packet *packet)
{
	if (!packet)
		return SOCKET_NONE;
	struct bpf_sock *socket = look_up_socket(skb, packet);
	if (!socket)
		return SOCKET_NONE;
	int kind = kind_of(socket);
	bpf_sk_release(socket);
	return kind;
}
