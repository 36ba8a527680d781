/* Handshakes of which the kernel remembers nothing. */
#pragma once
#include "packet.h"

/* Whether an acknowledgement ends a handshake that the listener answered without remembering it, as under a flood of SYNs. */
static __noinline int has_syn_cookie(struct __sk_buff *skb, const struct packet *packet)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *listener;
	if (!packet)
		return 0;
	struct tcphdr tcp = packet->tcp;
	struct iphdr ip4 = {};
	struct ipv6hdr ip6 = {};
	int has_cookie;
	if (packet->is_ipv4) {
		if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip4, sizeof(ip4)) < 0)
			return 0;
		tuple.ipv4.saddr = ip4.saddr;
		tuple.ipv4.daddr = ip4.daddr;
		tuple.ipv4.sport = tcp.source;
		tuple.ipv4.dport = tcp.dest;
		listener = bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
		if (!listener)
			return 0;
		has_cookie = bpf_tcp_check_syncookie(listener, &ip4, sizeof(ip4), &tcp, sizeof(tcp)) == 0;
	} else {
		if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip6, sizeof(ip6)) < 0)
			return 0;
		__builtin_memcpy(tuple.ipv6.saddr, packet->source, 16);
		__builtin_memcpy(tuple.ipv6.daddr, packet->destination, 16);
		tuple.ipv6.sport = tcp.source;
		tuple.ipv6.dport = tcp.dest;
		listener = bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv6), BPF_F_CURRENT_NETNS, 0);
		if (!listener)
			return 0;
		has_cookie = bpf_tcp_check_syncookie(listener, &ip6, sizeof(ip6), &tcp, sizeof(tcp)) == 0;
	}
	bpf_sk_release(listener);
	return has_cookie;
}
