/* Connections at servers that aren't leat, on which leat is asked for each request where it belongs: which packets go on to their holder unasked. What becomes of
 * those that wait is leat's to say. docs/decisions/0033-transplants.md has the reasons. */
#pragma once
#include "choice.h"

/* Whether leat has made this packet of what the client has said. A client that makes one has no key, and ends its own connection by it. */
static __always_inline int is_planting(struct __sk_buff *skb, const struct packet *packet)
{
	__be32 word;
	return packet->tcp.doff >= 10 && bpf_skb_load_bytes(skb, packet->l4 + PLANTING_AT, &word, sizeof(word)) == 0 &&
	       word == bpf_htonl(PLANTING_WORD);
}

/* Whether a connection's last server has been told that its client has reset it, and the next one has got nothing of it yet. */
static __always_inline int is_between_servers(const struct flow *flow)
{
	/* In this order: a change says whose turn it is before it takes the reset back. */
	__u8 is_reset = *(const volatile __u8 *)&flow->reset, turn = *(const volatile __u8 *)&flow->turn;
	return turn == TURN_PLANTING || (turn == TURN_LEAT && is_reset);
}

/* Whether a packet goes on to its connection's holder. If not, it waits. */
static __noinline int goes_on_unasked(struct __sk_buff *skb, const struct packet *packet, struct flow *flow)
{
	if (!packet || !flow)
		return 0;
	__u32 sequence = bpf_ntohl(packet->tcp.seq), end = sequence + packet->payload;
	/* leat's: its client has said more, and has acknowledged something since. */
	if (packet->tcp.rst && flow->turn == TURN_LEAT && sequence == flow->looked_to)
		flow->reset = 1;
	/* Who only acknowledges, resets, or sends no more after its last request, asks for nothing. */
	if (!packet->payload && !(packet->tcp.fin && flow->turn != TURN_CLIENT))
		return 1;
	if (flow->turn == TURN_NOBODY)
		return 1;
	if (flow->turn == TURN_PLANTING || flow->turn == TURN_PLANTED) {
		if (is_planting(skb, packet)) {
			flow->turn = TURN_PLANTED;
			return 1;
		}
		if ((__s32)(bpf_ntohl(packet->tcp.ack_seq) - flow->base) <= 0)
			return 0;
		flow->turn = TURN_CLIENT;
	}
	/* Sent again: its holder may not have got it. */
	if ((__s32)(end - flow->looked_to) <= 0)
		return 1;
	if (flow->turn == TURN_LEAT)
		return 0;
	/* What begins before that has been sent again with more: leat sends on what its holder may lack of it. */
	if (sequence == flow->looked_to && belongs_to(skb, packet, flow->holder)) {
		flow->looked_to = end;
		return 1;
	}
	flow->turn = TURN_LEAT;
	return 0;
}
