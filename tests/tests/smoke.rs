//! The server starts and answers.

use sluice_tests::TestServer;

#[tokio::test]
async fn a_server_answers_and_survives_a_restart() {
    let mut server = TestServer::start().await;
    let missing = server.get("/no/such/page").await;
    assert_eq!(missing.status, 404);
    server.kill9().await;
    server.restart().await;
    assert_eq!(server.get("/no/such/page").await.status, 404);
}
