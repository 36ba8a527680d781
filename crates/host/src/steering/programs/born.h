/* Gives this host's own listener a connection whose handshake it never saw (bpf_sk_assign_tcp_reqsk, Linux 6.9). */
#pragma once
#include "cookie.h"

struct sock;

struct bpf_tcp_req_attrs {
	__u32 rcv_tsval;
	__u32 rcv_tsecr;
	__u16 mss;
	__u8 rcv_wscale;
	__u8 snd_wscale;
	__u8 ecn_ok;
	__u8 wscale_ok;
	__u8 sack_ok;
	__u8 tstamp_ok;
	__u8 usec_ts_ok;
	__u8 reserved[3];
};

/* A function of the kernel's, which has another number in each kernel: leat puts it here when it loads this. */
#define ASSIGN_PLACE 0x6c656174
static int (*const bpf_sk_assign_tcp_reqsk)(struct __sk_buff *skb, struct sock *sk, struct bpf_tcp_req_attrs *attrs, int attrs__sz) =
	(void *)ASSIGN_PLACE;

/* SO_MARK's place in a packet that has been here before: what is left of an old connection has been told to go. */
#define SECOND_TIME 0x6c656132

/* The listener of a packet's destination, or the one that stands for it, whatever else there is of its connection: nobody sends from port 0. */
static __always_inline struct bpf_sock *find_listener(struct __sk_buff *skb, const struct packet *packet, const struct service *service)
{
	struct bpf_sock_tuple tuple = {};
	const __u8 *address = packet->destination;
	__be16 port = packet->destination_port;
	if (service && service->flags & SERVICE_FOREIGN) {
		address = service->listener;
		port = service->listener_port;
	}
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

/* Returns whether the packet makes a connection at this host's listener, or the one of `service`, as soon as it's let through. */
static __noinline int give_to_listener(struct __sk_buff *skb, const struct packet *packet, const struct handshake *handshake,
				       const struct service *service)
{
	if (!packet || !handshake)
		return 0;
	const struct syn_options *options = &handshake->options;
	__u32 has_scale = options->window_scale <= WINDOW_SCALE_MAX;
	struct bpf_tcp_req_attrs attributes = {
		.rcv_tsval = options->timestamp,
		.rcv_tsecr = options->echo,
		.mss = options->mss,
		.rcv_wscale = has_scale ? OWN_WINDOW_SCALE : 0,
		.snd_wscale = has_scale ? options->window_scale : 0,
		.wscale_ok = has_scale,
		.sack_ok = options->sack,
		.tstamp_ok = 1,
	};
	struct bpf_sock *common = find_listener(skb, packet, service);
	if (!common)
		return 0;
	int given = 0;
	if (common->state == BPF_TCP_LISTEN) {
		struct sock *listener = (struct sock *)bpf_skc_to_tcp_sock(common);
		if (listener)
			given = bpf_sk_assign_tcp_reqsk(skb, listener, &attributes, sizeof(attributes)) == 0;
	}
	bpf_sk_release(common);
	return given;
}

static __always_inline int change_word(struct __sk_buff *skb, __u32 checksum_at, __u32 at, __be32 to)
{
	__be32 from;
	return bpf_skb_load_bytes(skb, at, &from, sizeof(from)) == 0 &&
	       bpf_l4_csum_replace(skb, checksum_at, from, to, sizeof(to)) == 0 && bpf_skb_store_bytes(skb, at, &to, sizeof(to), 0) == 0;
}

/* A connection that this host closed first is remembered for a minute, and its memory takes the place of one that has the same ends. So the packet goes
 * round once more, and what goes on from here ends that. It becomes a SYN, as an ordinary one would, that is good for nothing else, as it has a FIN.
 * Where the listener has another address that does nothing: there it becomes a reset with the number that is expected, if it's known (`next`). */
static __noinline int end_time_wait(struct __sk_buff *skb, const struct packet *packet, const __u32 *next)
{
	if (!packet || skb->mark == SECOND_TIME)
		return TC_ACT_SHOT;
	__u32 mark = skb->mark;
	__u32 sequence = next ? *next : 0;
	skb->mark = SECOND_TIME;
	if (bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS) < 0)
		return TC_ACT_SHOT;
	skb->mark = mark;
	__u32 checksum_at = packet->l4 + TCP_CHECKSUM_OFFSET, flags_at = packet->l4 + 12;
	__be16 from, to;
	if (bpf_skb_load_bytes(skb, flags_at, &from, sizeof(from)) < 0)
		return TC_ACT_SHOT;
	to = (from & bpf_htons(0xf000)) | bpf_htons(next ? 0x0004 : 0x0003);
	if (bpf_l4_csum_replace(skb, checksum_at, from, to, sizeof(to)) < 0 ||
	    bpf_skb_store_bytes(skb, flags_at, &to, sizeof(to), 0) < 0)
		return TC_ACT_SHOT;
	if (next && !change_word(skb, checksum_at, packet->l4 + 4, bpf_htonl(sequence)))
		return TC_ACT_SHOT;
	return TC_ACT_UNSPEC;
}
