/* What is left of an old connection and in the way of a new one that has the same ends. */
#pragma once
#include "turn.h"

/* SO_MARK's place in a packet that has been here before: what is left of an old connection has been told to go. */
#define SECOND_TIME 0x6c656132

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
