/* At a node whose server isn't leat: connections to the VIP begin at its listener, wherever that listens. The kernel makes of the SYN what it makes of any, but with
 * the VIP as the connection's own address. docs/decisions/0015-foreign.md has the reasons. */
#pragma once
#include "listener.h"
#include "syncookie.h"
#include "time_wait.h"
#include "turn.h"

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
	int is_given = listener->state == BPF_TCP_LISTEN && (packet->tcp.syn || has_cookie_of(skb, packet, listener));
	if (is_given && bpf_sk_assign(skb, listener, 0) < 0) {
		count(UNSERVED);
		is_given = 0;
	} else if (is_given) {
		count(SERVED);
	}
	bpf_sk_release(listener);
	return is_given;
}

/* Makes of a SYN what the kernel would answer if nobody listened, and sends it back the way it came. Turning addresses and ports round changes no sum. */
static __noinline int refuse(struct __sk_buff *skb, const struct packet *packet)
{
	if (!packet)
		return TC_ACT_SHOT;
	__u32 l4 = packet->l4, checksum = l4 + TCP_CHECKSUM_OFFSET;
	__be16 ports[2] = { packet->destination_port, packet->source_port };
	__be16 from, to;
	int is_turned;
	if (packet->is_ipv4) {
		__be32 addresses[2] = { mapped_ipv4(packet->destination), mapped_ipv4(packet->source) };
		is_turned = bpf_skb_store_bytes(skb, ETH_HLEN + offsetof(struct iphdr, saddr), addresses, sizeof(addresses), 0) == 0;
	} else {
		__u32 at = ETH_HLEN + offsetof(struct ipv6hdr, saddr);
		is_turned = bpf_skb_store_bytes(skb, at, packet->destination, 16, 0) == 0 &&
			    bpf_skb_store_bytes(skb, at + 16, packet->source, 16, 0) == 0;
	}
	if (!is_turned || !turn_ethernet(skb) || bpf_skb_store_bytes(skb, l4, ports, sizeof(ports), 0) < 0 ||
	    bpf_skb_load_bytes(skb, l4 + 12, &from, sizeof(from)) < 0)
		return TC_ACT_SHOT;
	/* RST and ACK; the options may stay. */
	to = (from & bpf_htons(0xf000)) | bpf_htons(0x0014);
	if (!change_word(skb, checksum, l4 + 4, 0) || !change_word(skb, checksum, l4 + 8, bpf_htonl(bpf_ntohl(packet->tcp.seq) + 1 + packet->payload)) ||
	    bpf_l4_csum_replace(skb, checksum, from, to, sizeof(to)) < 0 || bpf_skb_store_bytes(skb, l4 + 12, &to, sizeof(to), 0) < 0)
		return TC_ACT_SHOT;
	return bpf_redirect(skb->ifindex, 0);
}

static __noinline int begin(struct __sk_buff *skb, const struct packet *packet, int kind, const struct spread_service *service)
{
	struct flow_key key;
	if (!packet || !service || packet->tcp.ack)
		return TC_ACT_UNSPEC;
	if (service->flags & SPREAD_REFUSES)
		return refuse(skb, packet);
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
