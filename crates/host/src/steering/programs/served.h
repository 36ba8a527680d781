/* At a node whose server isn't leat: connections to the VIP begin at its listener, wherever that listens. The kernel makes of the SYN what it makes of any, but with
 * the VIP as the connection's own address. docs/decisions/0015-foreign.md has the reasons. */
#pragma once
#include "listener.h"
#include "syncookie.h"
#include "time_wait.h"

/* What follows on a client's FIN: with that number, a connection is ended that the kernel remembers for a minute. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, struct flow_key);
	__type(value, __u32);
} goodbyes SEC(".maps");

static __always_inline int concerns_node(const struct packet *packet)
{
	return 1;
}

static __noinline void note_goodbye(const struct packet *packet)
{
	struct flow_key key;
	if (!packet)
		return;
	set_key(&key, packet);
	__u32 next = bpf_ntohl(packet->tcp.seq) + packet->payload + 1;
	bpf_map_update_elem(&goodbyes, &key, &next, BPF_ANY);
}

/* Has the kernel take a packet for one to the server's listener. Returns whether it will: an acknowledgement must have the listener's cookie. */
static __noinline int give(struct __sk_buff *skb, const struct packet *packet, const struct spread_service *service)
{
	if (!packet || !service)
		return 0;
	struct bpf_sock *listener = find_listener(skb, packet, service->server, service->server_port);
	if (!listener) {
		if (packet->tcp.syn)
			count(UNSERVED);
		return 0;
	}
	int is_given = listener->state == BPF_TCP_LISTEN && (packet->tcp.syn || has_cookie_of(skb, packet, listener)) &&
		       bpf_sk_assign(skb, listener, 0) == 0;
	bpf_sk_release(listener);
	if (is_given)
		count(SERVED);
	return is_given;
}

static __noinline int begin(struct __sk_buff *skb, const struct packet *packet, int kind, const struct spread_service *service)
{
	struct flow_key key;
	if (!packet || !service || packet->tcp.ack)
		return TC_ACT_UNSPEC;
	if (service->flags & SPREAD_REFUSES)
		return TC_ACT_SHOT;
	if (kind == SOCKET_CONNECTION)
		return TC_ACT_UNSPEC;
	if (kind == SOCKET_OVER) {
		set_key(&key, packet);
		const __u32 *next = bpf_map_lookup_elem(&goodbyes, &key);
		/* What may be an old SYN, or was here before, the kernel asks its client about: if that has forgotten the old connection, its next SYN begins one. */
		if (skb->mark == SECOND_TIME || !next || (__s32)(bpf_ntohl(packet->tcp.seq) - *next) <= 0)
			return TC_ACT_UNSPEC;
		return end_time_wait(skb, packet, next);
	}
	/* Where nobody listens, the kernel refuses it. */
	give(skb, packet, service);
	return TC_ACT_UNSPEC;
}

/* Whether a packet without a connection ends a handshake that this host has begun. */
static __always_inline int ends_handshake(struct __sk_buff *skb, const struct packet *packet, int kind, const struct spread_service *service)
{
	return give(skb, packet, service);
}
