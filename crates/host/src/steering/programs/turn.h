/* Packets that become others: answers of themselves, mostly. Decides nothing. */
#pragma once
#include "packet.h"

static __always_inline int change_word(struct __sk_buff *skb, __u32 checksum_at, __u32 at, __be32 to)
{
	__be32 from;
	return bpf_skb_load_bytes(skb, at, &from, sizeof(from)) == 0 &&
	       bpf_l4_csum_replace(skb, checksum_at, from, to, sizeof(to)) == 0 && bpf_skb_store_bytes(skb, at, &to, sizeof(to), 0) == 0;
}

/* Back to who sent it, on the wire. */
static inline __noinline int turn_ethernet(struct __sk_buff *skb)
{
	__u8 addresses[12], turned[12];
	if (bpf_skb_load_bytes(skb, 0, addresses, sizeof(addresses)) < 0)
		return 0;
	__builtin_memcpy(turned, addresses + 6, 6);
	__builtin_memcpy(turned + 6, addresses, 6);
	return bpf_skb_store_bytes(skb, 0, turned, sizeof(turned), 0) == 0;
}
