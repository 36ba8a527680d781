/* Handshakes of which the kernel remembers nothing. */
#pragma once
#include "listener.h"

/* Whether an acknowledgement ends a handshake that a listener answered without remembering it, as under a flood of SYNs. */
static __noinline int has_cookie_of(struct __sk_buff *skb, const struct packet *packet, struct bpf_sock *listener)
{
	if (!packet || !listener)
		return 0;
	struct tcphdr tcp = packet->tcp;
	if (packet->is_ipv4) {
		struct iphdr ip;
		return bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) == 0 &&
		       bpf_tcp_check_syncookie(listener, &ip, sizeof(ip), &tcp, sizeof(tcp)) == 0;
	}
	struct ipv6hdr ip;
	return bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) == 0 &&
	       bpf_tcp_check_syncookie(listener, &ip, sizeof(ip), &tcp, sizeof(tcp)) == 0;
}

/* The same of who listens at the packet's destination. */
static __always_inline int has_syn_cookie(struct __sk_buff *skb, const struct packet *packet)
{
	if (!packet)
		return 0;
	struct bpf_sock *listener = find_own_listener(skb, packet);
	if (!listener)
		return 0;
	int has_cookie = has_cookie_of(skb, packet, listener);
	bpf_sk_release(listener);
	return has_cookie;
}
