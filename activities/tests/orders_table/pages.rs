//! Pages of orders for those who compare them with the workflows.

use overdue_activities::PageOf;
use overdue_runtime::history::FailureClass;

use super::shop::{Kind, LATER, NOW, PAST, Shop, class};

#[tokio::test]
async fn orders_with_one_and_the_same_deadline_are_each_on_one_page() {
    for kind in Kind::ALL {
        let shop = Shop::configured(kind, |orders| {
            let page = orders.sql.as_mut().unwrap().page.as_mut().unwrap();
            *page = page.replace("LIMIT 500", "LIMIT 100");
        })
        .await;
        let ids: Vec<String> = (0..250).map(|number| format!("o-{number:03}")).collect();
        shop.place_all(&ids.iter().map(String::as_str).collect::<Vec<_>>(), "UNPAID", PAST, None).await;
        shop.place("later", "UNPAID", LATER).await;
        shop.place("cancelled", "CANCELLED", PAST).await;
        let (mut found, mut sizes, mut cursor) = (Vec::new(), Vec::new(), None);
        loop {
            let page = shop.table().page(PageOf::Waiting, NOW.parse().unwrap(), cursor.as_deref()).await.unwrap();
            sizes.push(page.orders.len());
            assert!(page.orders.iter().all(|order| order.pay_deadline == PAST.parse().unwrap()), "{kind:?}");
            found.extend(page.orders.into_iter().map(|order| order.order_id));
            match page.next {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        assert_eq!(sizes, [100, 100, 50, 0], "{kind:?}");
        assert_eq!(found, ids, "{kind:?}");
    }
}

#[tokio::test]
async fn a_page_is_of_one_meaning_and_passes_further_columns_on() {
    for kind in Kind::ALL {
        let shop = Shop::open(kind).await;
        shop.place("a", "PAID", PAST).await;
        shop.place("b", "SHIPPED", PAST).await;
        shop.place("c", "UNPAID", PAST).await;
        let page = shop.table().page(PageOf::Paid, NOW.parse().unwrap(), None).await.unwrap();
        let seen: Vec<_> = page.orders.iter().map(|order| (order.order_id.as_str(), order.others[0].1.as_str())).collect();
        assert_eq!(seen, [("a", "PAID"), ("b", "SHIPPED")], "{kind:?}");
        let error = shop.table().page(PageOf::Paid, NOW.parse().unwrap(), Some("nonsense")).await.unwrap_err();
        assert_eq!(class(&error), (FailureClass::Permanent, "input"), "{kind:?}");
    }
}
